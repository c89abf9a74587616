package metadata

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// Scan calls fn for the live keys from <= key < to in order; to nil means to the end of from's first byte. The overlay
// wins over the tree. fn may end the scan with ErrStop; key and value are valid only during the call. fn runs without
// locks and sees the state as of the call of Scan.
func (l *Live) Scan(ctx context.Context, from, to []byte, fn func(key, value []byte) error) error {
	if to == nil {
		to = PrefixEnd(from[:1])
	}
	if l.db == nil {
		if t := l.Base(); t != nil && Committed(from) {
			return t.Scan(ctx, from, to, fn)
		}
		return nil
	}
	l.mu.Lock()
	over := overlayScan{pend: l.pendingRange(from, to), to: to}
	v, base := l.acquire(), l.base
	l.mu.Unlock()
	defer l.release(v)
	return over.merge(ctx, v.txn, base, from, fn)
}

// merge runs fn over the overlay and the tree below it, from the key from on.
func (over *overlayScan) merge(ctx context.Context, txn *badger.Txn, base *Tree, from []byte, fn func(key, value []byte) error) error {
	over.open(txn, from)
	defer over.close()
	if base != nil && Committed(from) {
		err := base.Scan(ctx, from, over.to, func(key, value []byte) error {
			if err := over.emit(key, fn); err != nil {
				return err
			}
			if over.at(key) {
				return nil // the overlay has its own word on this key; emit comes to it next
			}
			err := fn(key, value)
			over.stopped = err != nil
			return err
		})
		if err != nil || over.stopped {
			return err
		}
	}
	if err := over.emit(nil, fn); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// ScanLocal is Scan over the overlay alone; deleted keys are left out.
func (l *Live) ScanLocal(prefix []byte, fn func(key, value []byte) error) error {
	l.mu.Lock()
	to := PrefixEnd(prefix)
	over := overlayScan{pend: l.pendingRange(prefix, to), to: to}
	v := l.acquire()
	l.mu.Unlock()
	defer l.release(v)
	over.open(v.txn, prefix)
	defer over.close()
	if err := over.emit(nil, fn); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

type pendingKey struct {
	key   string
	value []byte
}

// pendingRange collects the newest pending value of each key in the range, in key order. l.mu is held.
func (l *Live) pendingRange(from, to []byte) []pendingKey {
	var out []pendingKey
	lo, hi := string(from), string(to)
	seen := map[string]struct{}{}
	take := func(b *batch) {
		for k, p := range b.m {
			if k < lo || k >= hi {
				continue
			}
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				out = append(out, pendingKey{k, p.value})
			}
		}
	}
	take(l.cur)
	for i := len(l.sealed) - 1; i >= 0; i-- {
		take(l.sealed[i])
	}
	slices.SortFunc(out, func(a, b pendingKey) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	return out
}

// overlayScan merges pending keys and Badger's, in order.
type overlayScan struct {
	pend    []pendingKey
	it      *badger.Iterator
	to      []byte
	stopped bool
}

func (s *overlayScan) open(txn *badger.Txn, from []byte) {
	s.it = txn.NewIterator(badger.IteratorOptions{PrefetchValues: false, Prefix: from[:1]})
	s.it.Seek(from)
}

func (s *overlayScan) close() { s.it.Close() }

// head returns the next key of the overlay, nil at its end.
func (s *overlayScan) head() []byte {
	var k []byte
	if s.it.Valid() {
		if ik := s.it.Item().Key(); bytes.Compare(ik, s.to) < 0 {
			k = ik
		}
	}
	if len(s.pend) > 0 {
		if p := []byte(s.pend[0].key); k == nil || bytes.Compare(p, k) <= 0 {
			return p
		}
	}
	return k
}

// at tells whether the overlay's next key is key.
func (s *overlayScan) at(key []byte) bool { h := s.head(); return h != nil && bytes.Equal(h, key) }

// emit calls fn for the overlay's live keys before limit (all of them if limit is nil).
func (s *overlayScan) emit(limit []byte, fn func(key, value []byte) error) error {
	for {
		k := s.head()
		if k == nil || (limit != nil && bytes.Compare(k, limit) >= 0) {
			return nil
		}
		k = bytes.Clone(k)
		v, err := s.next(k)
		if err != nil {
			return err
		}
		if v == nil {
			continue // deleted
		}
		if err := fn(k, v); err != nil {
			s.stopped = true
			return err
		}
	}
}

// next takes key, which is head(), off the overlay and returns its value, nil if it is deleted.
func (s *overlayScan) next(key []byte) (value []byte, err error) {
	fromPending := len(s.pend) > 0 && s.pend[0].key == string(key)
	if fromPending {
		value = s.pend[0].value
		s.pend = s.pend[1:]
	}
	if s.it.Valid() && bytes.Equal(s.it.Item().Key(), key) {
		if item := s.it.Item(); !fromPending && item.UserMeta() != tombstone {
			if value, err = item.ValueCopy(nil); err != nil {
				return nil, err
			}
			if value == nil {
				value = []byte{}
			}
		}
		s.it.Next()
	}
	return value, nil
}

// snapshotView is a snapshot over a committed tree.
type snapshotView struct {
	s    *Snapshot
	base *Tree
}

// View returns the snapshot over the tree it was taken over, for reading while the snapshot is open.
func (s *Snapshot) View(base *Tree) View { return snapshotView{s, base} }

// Get returns the snapshot's value of a key, else the tree's.
func (v snapshotView) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	value, known, err := getTxn(v.s.txn, key)
	if err != nil || known || v.base == nil {
		return value, value != nil, err
	}
	return v.base.Get(ctx, key)
}

// Scan is Live.Scan as of the snapshot.
func (v snapshotView) Scan(ctx context.Context, from, to []byte, fn func(key, value []byte) error) error {
	if to == nil {
		to = PrefixEnd(from[:1])
	}
	over := overlayScan{to: to}
	return over.merge(ctx, v.s.txn, v.base, from, fn)
}

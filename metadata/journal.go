package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// JournalRecord is what one group of ops leaves in the journal: the keys that a commit must look at.
// Encoding: uvarint first seq, varint time (ns since 1970), then per key uvarint length and the key. The last seq is in
// the record's own key.
type JournalRecord struct {
	First uint64
	Time  int64
	Keys  [][]byte
}

func journalKey(last uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{KeyJournal}, last)
}

func appendJournal(b []byte, r JournalRecord) []byte {
	b = binary.AppendUvarint(b, r.First)
	b = binary.AppendVarint(b, r.Time)
	for _, k := range r.Keys {
		b = binary.AppendUvarint(b, uint64(len(k)))
		b = append(b, k...)
	}
	return b
}

// DecodeJournal reads what appendJournal wrote. The keys alias b.
func DecodeJournal(b []byte) (JournalRecord, error) {
	d := decoder{b: b}
	r := JournalRecord{First: d.uvarint(), Time: d.varint()}
	for d.err == nil && len(d.b) > 0 {
		r.Keys = append(r.Keys, d.bytes(int(d.uvarint())))
	}
	if d.err != nil {
		return r, fmt.Errorf("journal record: %w", d.err)
	}
	return r, nil
}

func readJournal(item *badger.Item) (last uint64, rec JournalRecord, err error) {
	key := item.Key()
	if len(key) != 9 {
		return 0, rec, fmt.Errorf("journal key %x: %w", key, ErrRecord)
	}
	last = binary.BigEndian.Uint64(key[1:])
	val, err := item.ValueCopy(nil)
	if err != nil {
		return 0, rec, fmt.Errorf("journal op %d: %w", last, err)
	}
	rec, err = DecodeJournal(val)
	return last, rec, err
}

// flushLoop writes batches, one after the other, until Close. A batch waits flushDelay for company unless somebody
// waits for it.
func (l *Live) flushLoop() {
	defer close(l.flusher)
	timer := time.NewTimer(time.Hour)
	for {
		l.mu.Lock()
		idle, closing := len(l.sealed) == 0 && l.cur.size == 0, l.closing
		gather := len(l.sealed) == 0 && !closing
		l.mu.Unlock()
		if idle {
			if closing {
				return
			}
			select {
			case <-l.wake:
			case <-l.urgent:
			}
			continue
		}
		if gather {
			timer.Reset(l.flushDelay)
			select {
			case <-timer.C:
			case <-l.urgent:
			}
		}
		l.writeNext()
	}
}

// writeNext writes the oldest batch and makes it part of the read view.
func (l *Live) writeNext() {
	l.mu.Lock()
	if len(l.sealed) == 0 {
		if l.cur.size == 0 {
			l.mu.Unlock()
			return
		}
		l.sealed = append(l.sealed, l.cur)
		l.cur = newBatch()
	}
	b, failed := l.sealed[0], l.err
	l.mu.Unlock()

	err := failed
	if err == nil {
		err = l.writeBatch(b)
	}
	txn := l.db.NewTransaction(false)
	if b.snap != nil {
		b.snap <- l.db.NewTransaction(false)
	}

	l.mu.Lock()
	old := l.view
	old.refs--
	discard := old.refs == 0
	l.view = &view{txn: txn, refs: 1}
	l.sealed = l.sealed[1:]
	if err == nil {
		l.written = max(l.written, b.last)
	} else if l.err == nil {
		l.err = err
		l.log.Error("journal write failed; nothing more is accepted", "err", err)
	}
	l.room.Broadcast()
	l.mu.Unlock()
	if discard {
		old.txn.Discard()
	}
}

func (l *Live) writeBatch(b *batch) error {
	if len(b.m) == 0 {
		return nil
	}
	txn := l.db.NewTransaction(true)
	defer txn.Discard()
	rec := JournalRecord{First: b.first, Time: time.Now().UnixNano()}
	for k, p := range b.m {
		key := []byte(k)
		if p.dirty {
			rec.Keys = append(rec.Keys, key)
		}
		var err error
		switch {
		case p.value != nil:
			err = txn.Set(key, p.value)
		case Committed(key):
			err = txn.SetEntry(badger.NewEntry(key, nil).WithMeta(tombstone))
		default:
			err = txn.Delete(key)
		}
		if err != nil {
			return fmt.Errorf("journal ops %d to %d: %w", b.first, b.last, err)
		}
	}
	if err := txn.Set(journalKey(b.last), appendJournal(nil, rec)); err != nil {
		return fmt.Errorf("journal ops %d to %d: %w", b.first, b.last, err)
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("journal ops %d to %d: %w", b.first, b.last, err)
	}
	return nil
}

// Flush waits until every op appended so far is in Badger: it survives the end of this process, not a power loss.
func (l *Live) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flushLocked()
}

func (l *Live) flushLocked() error {
	target := l.lastSeq
	for l.written < target && l.err == nil {
		poke(l.urgent)
		l.room.Wait()
	}
	if l.err != nil {
		return l.failure()
	}
	return nil
}

// Sync waits until every op appended so far is on stable storage. Callers that arrive together share one sync.
func (l *Live) Sync() error {
	l.mu.Lock()
	target := l.lastSeq
	err := l.flushLocked()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.synced >= target {
		return nil
	}
	l.mu.Lock()
	covered := l.written
	l.mu.Unlock()
	// Content first: a pointer on stable storage must not be ahead of its bytes.
	if err := l.content.sync(); err != nil {
		return fmt.Errorf("sync content: %w", err)
	}
	if err := l.syncFiles(); err != nil {
		return fmt.Errorf("sync metadata: %w", err)
	}
	l.synced = covered
	return nil
}

// syncFiles syncs Badger's active logs and, what its own Sync leaves out, the write-ahead logs of memtables that are
// full but not yet flushed to a table, and the directory when it has new names.
func (l *Live) syncFiles() error {
	if err := l.db.Sync(); err != nil {
		return err
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	var mems []string
	fresh := false
	present := make(map[string]bool, len(l.files))
	for _, e := range entries {
		name := e.Name()
		isMem := strings.HasSuffix(name, ".mem")
		if !isMem && !strings.HasSuffix(name, ".vlog") {
			continue
		}
		if isMem {
			mems = append(mems, name)
		}
		done, known := l.files[name]
		fresh = fresh || !known
		present[name] = done
	}
	sort.Strings(mems)
	for i, name := range mems {
		if i == len(mems)-1 || present[name] {
			continue // the active one was synced above; a full one never changes again
		}
		if err := syncPath(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		present[name] = true
	}
	l.files = present
	if fresh {
		return syncPath(l.dir)
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// Close writes what waits, syncs and closes. The Live cannot be used afterwards.
func (l *Live) Close() error {
	if l.db == nil {
		return nil
	}
	syncErr := l.Sync()
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	poke(l.urgent)
	<-l.flusher
	l.view.txn.Discard()
	err := errors.Join(l.db.Close(), l.content.close())
	if err != nil {
		return errors.Join(syncErr, fmt.Errorf("close metadata: %w", err))
	}
	return syncErr
}

// Snapshot is the overlay as of one sequence number, unaffected by later ops.
type Snapshot struct {
	l   *Live
	txn *badger.Txn
	seq uint64
}

// Snapshot flushes and returns the state after the last op appended so far. Callers that need a state consistent with
// something of their own hold the lock that orders ops while they call BeginSnapshot, and wait outside it.
func (l *Live) Snapshot() (*Snapshot, error) { return l.BeginSnapshot()() }

// BeginSnapshot fixes the sequence number at once, without waiting, and returns a function that waits for the snapshot.
func (l *Live) BeginSnapshot() func() (*Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.closing {
		err := l.failure()
		return func() (*Snapshot, error) { return nil, err }
	}
	seq, c := l.lastSeq, make(chan *badger.Txn, 1)
	l.dirtyAt[seq] = l.dirtyOps
	l.cur.snap = c
	l.cur.size++ // an empty batch too must come by the flusher
	l.snapshots++
	l.seal()
	return func() (*Snapshot, error) {
		txn := <-c
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil {
			l.snapshots--
			txn.Discard()
			return nil, l.failure()
		}
		return &Snapshot{l: l, txn: txn, seq: seq}, nil
	}
}

// Seq is the sequence number of the last op in the snapshot.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Get returns the overlay's value of a key; false: deleted, or not in the overlay.
func (s *Snapshot) Get(key []byte) ([]byte, bool, error) {
	v, _, err := getTxn(s.txn, key)
	return v, v != nil, err
}

// Content returns the content of an inode with ContentJournal.
func (s *Snapshot) Content(ino Ino) ([]byte, error) {
	v, ok, err := s.Get(ContentKey(ino))
	if err == nil && !ok {
		err = fmt.Errorf("inode %d: %w: its content is not in the journal", ino, ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	return s.l.content.read(v)
}

// Dirty calls fn for each key of the committed key space named by the journal, in ascending order, each once.
func (s *Snapshot) Dirty(fn func(key []byte) error) error {
	keys, err := s.dirtyKeys()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := fn([]byte(k)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) dirtyKeys() ([]string, error) {
	set := map[string]struct{}{}
	err := s.journal(func(_ uint64, rec JournalRecord) error {
		for _, k := range rec.Keys {
			if _, ok := set[string(k)]; !ok {
				set[string(k)] = struct{}{}
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(set)), err
}

func (s *Snapshot) journal(fn func(last uint64, rec JournalRecord) error) error {
	return scanJournal(s.txn, fn)
}

func scanJournal(txn *badger.Txn, fn func(last uint64, rec JournalRecord) error) error {
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{KeyJournal}, PrefetchValues: true, PrefetchSize: 16})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		last, rec, err := readJournal(it.Item())
		if err != nil {
			return err
		}
		if err := fn(last, rec); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the snapshot.
func (s *Snapshot) Close() {
	s.txn.Discard()
	s.l.mu.Lock()
	s.l.snapshots--
	s.l.mu.Unlock()
}

// Settle tells that every op up to seq is in a durable commit and that everything this makes true has been appended
// before: the ops leave the journal.
func (l *Live) Settle(seq uint64) error {
	l.mu.Lock()
	if seq <= l.settled {
		l.mu.Unlock()
		return nil
	}
	v := l.acquire()
	l.mu.Unlock()
	muts := []Mutation{{Key: LocalKey("settled"), Value: binary.BigEndian.AppendUint64(nil, seq)}}
	err := scanJournal(v.txn, func(last uint64, _ JournalRecord) error {
		if last <= seq {
			muts = append(muts, Mutation{Key: journalKey(last)})
		}
		return nil
	})
	l.release(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.settled = seq
	if n, ok := l.dirtyAt[seq]; ok {
		l.dirtySettled = n
	}
	clear(l.dirtyAt) // snapshots are settled in order, and an older one never after a newer
	l.mu.Unlock()
	return l.AppendClean(muts)
}

// Pending is how many ops wait for a commit.
func (l *Live) Pending() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dirtyOps - l.dirtySettled
}

// Dirty tells whether the journal names any key of the committed key space.
func (l *Live) Dirty() (bool, error) {
	if err := l.Flush(); err != nil {
		return false, err
	}
	l.mu.Lock()
	v := l.acquire()
	l.mu.Unlock()
	defer l.release(v)
	settled, err := readUint(v.txn, LocalKey("settled"))
	if err != nil {
		return false, err
	}
	dirty := false
	err = scanJournal(v.txn, func(last uint64, rec JournalRecord) error {
		dirty = dirty || last > settled && len(rec.Keys) > 0
		return nil
	})
	return dirty, err
}

// Reset drops everything but the remembered chunks and the local facts: the overlay is empty, nothing is dirty, and the
// next op has a greater number than seq.
func (l *Live) Reset(seq uint64) error {
	seq = max(seq, l.LastSeq()+1) // the next op, whose record goes with the others
	err := l.AppendClean([]Mutation{{Key: LocalKey("settled"), Value: binary.BigEndian.AppendUint64(nil, seq)}})
	if err != nil {
		return err
	}
	if err := l.Flush(); err != nil {
		return err
	}
	if err := l.dropOverlay(seq); err != nil {
		return fmt.Errorf("reset metadata: %w", err)
	}
	return l.Sync()
}

func (l *Live) dropOverlay(seq uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.txn.Discard()
	err := l.db.DropPrefix([]byte{KeySuper}, []byte{KeyDirent}, []byte{KeyExtent}, []byte{KeyInode}, []byte{KeyXattr},
		[]byte{KeyContent}, []byte{KeyJournal}, []byte{KeyStaging}, []byte{KeyOrphan})
	l.view = &view{txn: l.db.NewTransaction(false), refs: 1}
	for ino := range maps.Clone(l.content.owners) {
		err = errors.Join(err, l.content.own(ino, nil))
	}
	l.lastSeq, l.written, l.settled = max(l.lastSeq, seq), max(l.written, seq), seq
	l.dirtySettled = l.dirtyOps
	return err
}

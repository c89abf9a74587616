// Package count is a wrapper that counts what passes through it: requests, bytes and errors by kind. Put right above
// a driver it counts what really goes out, retries included.
package count

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"wsfs/blobs"
)

// Kind is a kind of request.
type Kind int

// The kinds, in the order of a Snapshot.
const (
	Get Kind = iota
	Put
	PutIfAbsent
	Delete
	List
	Presign
	Kinds // how many there are
)

var kindNames = [Kinds]string{"get", "put", "put_if_absent", "delete", "list", "presign"}

func (k Kind) String() string { return kindNames[k] }

// Tally is what happened for one kind.
type Tally struct {
	Requests int64         // begun and ended
	Errors   int64         // of them: ended with any error, ErrNotExist and ErrExist included
	Up       int64         // bytes of bodies given to puts, failed ones included
	Down     int64         // bytes of bodies that gets returned
	Time     time.Duration // added up over all requests; above the wall time where they overlap
}

func (t Tally) sub(o Tally) Tally {
	return Tally{t.Requests - o.Requests, t.Errors - o.Errors, t.Up - o.Up, t.Down - o.Down, t.Time - o.Time}
}

func (t Tally) add(o Tally) Tally {
	return Tally{t.Requests + o.Requests, t.Errors + o.Errors, t.Up + o.Up, t.Down + o.Down, t.Time + o.Time}
}

// Snapshot is every kind's Tally at one time, indexed by Kind. Each number is exact; numbers of requests that end while
// the snapshot is taken may be in it partly.
type Snapshot [Kinds]Tally

// Sub is what happened since the earlier snapshot before.
func (s Snapshot) Sub(before Snapshot) Snapshot {
	for k := range s {
		s[k] = s[k].sub(before[k])
	}
	return s
}

// Total adds up all kinds.
func (s Snapshot) Total() Tally {
	var t Tally
	for _, k := range s {
		t = t.add(k)
	}
	return t
}

// Store is a counting blobs.Store.
type Store struct {
	inner  blobs.Store
	counts [Kinds]struct{ requests, errors, up, down, nanos atomic.Int64 }
}

var _ blobs.Store = (*Store)(nil)

// New returns a counting store over inner.
func New(inner blobs.Store) *Store { return &Store{inner: inner} }

// Unwrap returns the store below.
func (s *Store) Unwrap() blobs.Store { return s.inner }

// Snapshot returns the counts since New.
func (s *Store) Snapshot() Snapshot {
	var out Snapshot
	for k := range out {
		c := &s.counts[k]
		out[k] = Tally{c.requests.Load(), c.errors.Load(), c.up.Load(), c.down.Load(), time.Duration(c.nanos.Load())}
	}
	return out
}

func (s *Store) note(k Kind, began time.Time, up, down int, err error) {
	c := &s.counts[k]
	c.requests.Add(1)
	c.up.Add(int64(up))
	c.down.Add(int64(down))
	c.nanos.Add(int64(time.Since(began)))
	if err != nil {
		c.errors.Add(1)
	}
}

// Get implements blobs.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	began := time.Now()
	body, err := s.inner.Get(ctx, key, offset, length)
	s.note(Get, began, 0, len(body), err)
	return body, err
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	began := time.Now()
	err := s.inner.Put(ctx, key, body)
	s.note(Put, began, len(body), 0, err)
	return err
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	began := time.Now()
	err := s.inner.PutIfAbsent(ctx, key, body)
	s.note(PutIfAbsent, began, len(body), 0, err)
	return err
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	began := time.Now()
	err := s.inner.Delete(ctx, key)
	s.note(Delete, began, 0, 0, err)
	return err
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	began := time.Now()
	page, err := s.inner.List(ctx, prefix, after, limit)
	s.note(List, began, 0, 0, err)
	return page, err
}

// Presign implements blobs.Store.
func (s *Store) Presign(ctx context.Context, key string, expires time.Duration, p blobs.PresignOptions) (*url.URL, error) {
	began := time.Now()
	u, err := s.inner.Presign(ctx, key, expires, p)
	s.note(Presign, began, 0, 0, err)
	return u, err
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.inner.URL() }

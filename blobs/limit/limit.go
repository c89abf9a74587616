// Package limit is a wrapper that bounds how many requests are under way at once and, if asked, how many bytes a
// second their bodies have together.
//
// Bulk requests (bodies above SmallBytes, gets of unknown length) can never hold more than Requests - Reserved of the
// slots, so that a lookup of a few bytes does not queue behind sixteen uploads of 16 MiB. Small requests may use all.
package limit

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"wsfs/blobs"
)

// Options are the bounds. The zero value is 32 requests, 4 of them reserved, and no byte rate.
type Options struct {
	Requests       int   // at once; <= 0: 32
	Reserved       int   // of them out of reach for bulk requests; < 0: none; 0: 4; always below Requests
	SmallBytes     int64 // a body up to this is small; <= 0: 64 KiB
	BytesPerSecond int64 // bodies up and down together; <= 0: no limit
}

// Store is a limiting blobs.Store.
type Store struct {
	inner blobs.Store
	small int64

	all  chan struct{} // one element per request under way
	bulk chan struct{} // one element per bulk request that has or waits for an element of all
	rate *rate         // nil: no limit
}

var _ blobs.Store = (*Store)(nil)

// New returns a limiting store over inner.
func New(inner blobs.Store, o Options) *Store {
	if o.Requests <= 0 {
		o.Requests = 32
	}
	if o.Reserved == 0 {
		o.Reserved = 4
	}
	o.Reserved = min(max(o.Reserved, 0), o.Requests-1)
	if o.SmallBytes <= 0 {
		o.SmallBytes = 64 << 10
	}
	s := &Store{
		inner: inner,
		small: o.SmallBytes,
		all:   make(chan struct{}, o.Requests),
		bulk:  make(chan struct{}, o.Requests-o.Reserved),
	}
	if o.BytesPerSecond > 0 {
		s.rate = &rate{perSecond: float64(o.BytesPerSecond)}
	}
	return s
}

// Unwrap returns the store below.
func (s *Store) Unwrap() blobs.Store { return s.inner }

// enter waits for a slot and returns what gives it back. Order: bulk before all; whoever holds an element of all
// waits for nothing, so there is no circle.
func (s *Store) enter(ctx context.Context, op, key string, isBulk bool) (leave func(), err error) {
	if isBulk {
		if err := take(ctx, s.bulk); err != nil {
			return nil, fmt.Errorf("%s %s: wait for a free request: %w", op, key, err)
		}
	}
	if err := take(ctx, s.all); err != nil {
		if isBulk {
			<-s.bulk
		}
		return nil, fmt.Errorf("%s %s: wait for a free request: %w", op, key, err)
	}
	return func() {
		<-s.all
		if isBulk {
			<-s.bulk
		}
	}, nil
}

func take(ctx context.Context, slots chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rate is a byte budget that refills steadily. A request is paid for as a whole and waits until the debts before it
// are worked off. Small requests add to the debt and do not wait.
type rate struct {
	perSecond float64

	mu   sync.Mutex // guards free
	free time.Time  // when all that has been paid for will have passed
}

// pay books n bytes and returns when they may go.
func (r *rate) pay(n int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.free.Before(now) {
		r.free = now
	}
	start := r.free
	r.free = start.Add(time.Duration(float64(n) / r.perSecond * float64(time.Second)))
	return start
}

// spend books n bytes (n > 0) and, for a bulk request, waits for their turn.
func (s *Store) spend(ctx context.Context, n int64, isBulk bool) error {
	if s.rate == nil {
		return nil
	}
	start := s.rate.pay(n)
	if !isBulk {
		return nil
	}
	t := time.NewTimer(time.Until(start))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the byte rate: %w", ctx.Err())
	}
}

// Get implements blobs.Store. The bytes are booked when they are there: only then is their number known.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	isBulk := length < 0 || length > s.small
	leave, err := s.enter(ctx, "get", key, isBulk)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.spend(ctx, 0, isBulk); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	body, err := s.inner.Get(ctx, key, offset, length)
	if s.rate != nil {
		s.rate.pay(int64(len(body)))
	}
	return body, err
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put", key, body, s.inner.Put)
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put if absent", key, body, s.inner.PutIfAbsent)
}

func (s *Store) put(ctx context.Context, op, key string, body []byte, put func(context.Context, string, []byte) error) error {
	isBulk := int64(len(body)) > s.small
	leave, err := s.enter(ctx, op, key, isBulk)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.spend(ctx, int64(len(body)), isBulk); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	return put(ctx, key, body)
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	leave, err := s.enter(ctx, "delete", key, false)
	if err != nil {
		return err
	}
	defer leave()
	return s.inner.Delete(ctx, key)
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	leave, err := s.enter(ctx, "list", prefix, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.inner.List(ctx, prefix, after, limit)
}

// Presign implements blobs.Store. It makes no request and takes no slot.
func (s *Store) Presign(ctx context.Context, key string, expires time.Duration, p blobs.PresignOptions) (*url.URL, error) {
	return s.inner.Presign(ctx, key, expires, p)
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.inner.URL() }

// Package retry is a wrapper that repeats what failed for a passing reason.
//
// Only blobs.ErrUnavailable passes. Everything else a driver reports is an answer (no such object, access denied, not
// supported, a clock that is off, a request that is wrong) and comes back at once, as does the end of the context.
//
// # The lost reply
//
// A put can succeed and its reply get lost. Repeating a Put or a Delete is harmless. Repeating a PutIfAbsent meets the
// object of its own first try:
//
//	we     PutIfAbsent(n+1, body) ------> store: stored
//	we     <--- connection reset --------
//	we     PutIfAbsent(n+1, body) ------> store: exists
//
// Believing this answer would make a writer think that another one reigns. So after at least one failed try ErrExist
// is not believed: the object is read, and if it is byte for byte our body the call has succeeded. Bodies that must
// have one owner carry a nonce, so equal means ours. Without a failed try before it, ErrExist is the truth and no read
// is made.
//
// If the budget ends between the two, the error is ErrUnavailable and the caller does not know whether its object is
// there. It must ask again and not conclude either way.
package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"wsfs/blobs"
)

// Options say how long and how often. The zero value is good for a real store.
type Options struct {
	Attempts int           // tries of one call, the first included; <= 0: 10
	Budget   time.Duration // no new try begins this long after the call began; <= 0: 60 s
	MinDelay time.Duration // the delay before the second try is random below this, and the bound doubles; <= 0: 100 ms
	MaxDelay time.Duration // where the doubling ends; <= 0: 10 s

	// Now, Sleep and Rand are the seams for time and chance; nil for the real ones. Sleep returns early with ctx's
	// error. Rand returns a number in [0, n).
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	Rand  func(n int64) int64
	// OnRetry is told before each wait; nil for nobody. It must be safe for concurrent use.
	OnRetry func(op, key string, tries int, err error, wait time.Duration)
}

// Store is a retrying blobs.Store.
type Store struct {
	inner blobs.Store
	o     Options
}

var _ blobs.Store = (*Store)(nil)

// New returns a retrying store over inner.
func New(inner blobs.Store, o Options) *Store {
	if o.Attempts <= 0 {
		o.Attempts = 10
	}
	if o.Budget <= 0 {
		o.Budget = time.Minute
	}
	if o.MinDelay <= 0 {
		o.MinDelay = 100 * time.Millisecond
	}
	if o.MaxDelay <= 0 {
		o.MaxDelay = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Rand == nil {
		o.Rand = rand.Int64N
	}
	if o.OnRetry == nil {
		o.OnRetry = func(string, string, int, error, time.Duration) {}
	}
	return &Store{inner: inner, o: o}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unwrap returns the store below.
func (s *Store) Unwrap() blobs.Store { return s.inner }

// delay is the wait after the given number of tries: full jitter, uniform below a bound that doubles. Independent
// callers that failed together must not come back together.
func (s *Store) delay(tries int) time.Duration {
	bound := s.o.MaxDelay
	if shift := tries - 1; shift < 30 && s.o.MinDelay<<shift < bound {
		bound = s.o.MinDelay << shift
	}
	return time.Duration(s.o.Rand(int64(bound)))
}

// do calls try until it succeeds, fails for good, or the budget is spent. failed tells try whether an earlier try has
// failed, and so may have done its work all the same.
func (s *Store) do(ctx context.Context, op, key string, try func(failed bool) error) error {
	end := s.o.Now().Add(s.o.Budget)
	for tries := 1; ; tries++ {
		err := try(tries > 1)
		if err == nil || !errors.Is(err, blobs.ErrUnavailable) {
			return err
		}
		if stop := ctx.Err(); stop != nil {
			return ended(stop, err)
		}
		wait := s.delay(tries)
		if tries >= s.o.Attempts || s.o.Now().Add(wait).After(end) {
			return fmt.Errorf("gave up after %d tries: %w", tries, err)
		}
		s.o.OnRetry(op, key, tries, err, wait)
		if stop := s.o.Sleep(ctx, wait); stop != nil {
			return ended(stop, err)
		}
	}
}

// ended is the error of a call whose context ended: it matches only that, so that nobody takes the caller's own
// decision for an outage. What the last try said is in the text.
func ended(stop, last error) error {
	return fmt.Errorf("%w before it could be repeated (%v)", stop, last)
}

// Get implements blobs.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) (body []byte, err error) {
	err = s.do(ctx, "get", key, func(bool) error {
		body, err = s.inner.Get(ctx, key, offset, length)
		return err
	})
	return body, err
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.do(ctx, "put", key, func(bool) error { return s.inner.Put(ctx, key, body) })
}

// PutIfAbsent implements blobs.Store. See the package comment for the lost reply.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.do(ctx, "put if absent", key, func(failed bool) error {
		err := s.inner.PutIfAbsent(ctx, key, body)
		if !failed || !errors.Is(err, blobs.ErrExist) {
			return err
		}
		found, getErr := s.inner.Get(ctx, key, 0, -1)
		switch {
		case errors.Is(getErr, blobs.ErrNotExist):
			// There a moment ago and gone: whoever deletes it has seen it, so it was there, ours or not.
			return fmt.Errorf("%w (and it was deleted before it could be compared)", err)
		case getErr != nil:
			// Not the ErrExist: whose object it is stays unknown.
			return fmt.Errorf("see whose object it is after a lost reply: %w", getErr)
		case bytes.Equal(found, body):
			return nil
		}
		return err
	})
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.do(ctx, "delete", key, func(bool) error { return s.inner.Delete(ctx, key) })
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (page []blobs.Object, err error) {
	err = s.do(ctx, "list", prefix, func(bool) error {
		page, err = s.inner.List(ctx, prefix, after, limit)
		return err
	})
	return page, err
}

// Presign implements blobs.Store.
func (s *Store) Presign(ctx context.Context, key string, expires time.Duration, p blobs.PresignOptions) (u *url.URL, err error) {
	err = s.do(ctx, "presign", key, func(bool) error {
		u, err = s.inner.Presign(ctx, key, expires, p)
		return err
	})
	return u, err
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.inner.URL() }

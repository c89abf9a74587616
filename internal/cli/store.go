package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/open"
	"wsfs/blobs/retry"
)

// How long a command tries to reach a store before it says that it cannot: tries of one request, and the longest wait
// for one answer.
const (
	firstTries  = 3
	firstBudget = 1500 * time.Millisecond
	firstAnswer = 4 * time.Second
	// writeBudget bounds the tries of one put of an open workspace. A commit that fails is made again anyway, and the
	// status says so: better soon than after the minute that a program waits for content.
	writeBudget = 5 * time.Second
)

// Reach opens a store that gives up after a short time. create makes a missing directory or bucket.
func Reach(ctx context.Context, rawURL string, create bool) (blobs.Store, error) {
	s, err := open.Store(ctx, rawURL, open.Options{Create: create, Retry: retry.Options{Budget: firstBudget, Attempts: firstTries}})
	if errors.Is(err, blobs.ErrNoStore) {
		return nil, NotFoundf("%v; create it with: wsctl init '%s'", err, rawURL)
	}
	if err != nil {
		return nil, err
	}
	return &hasty{Store: s}, nil
}

// openStore opens a store that is impatient until settle is called and patient from then on.
func openStore(ctx context.Context, rawURL string, create bool) (*phased, error) {
	short, err := Reach(ctx, rawURL, create)
	if err != nil {
		return nil, err
	}
	long, err := open.Store(ctx, rawURL, open.Options{})
	if err != nil {
		return nil, err
	}
	writes, err := open.Store(ctx, rawURL, open.Options{Retry: retry.Options{Budget: writeBudget}})
	if err != nil {
		return nil, err
	}
	p := &phased{}
	p.now.Store(&phase{short, short})
	p.long = phase{long, writes}
	return p, nil
}

// hasty bounds every wait for an answer, and once the store did not answer says so at once.
type hasty struct {
	blobs.Store
	down atomic.Pointer[error]
}

// try runs one request under the bound.
func (h *hasty) try(ctx context.Context, fn func(context.Context) error) error {
	if err := h.down.Load(); err != nil {
		return *err
	}
	bounded, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	err := fn(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("%s: %w: no answer within %v", h.URL(), blobs.ErrUnavailable, firstAnswer)
	}
	if errors.Is(err, blobs.ErrUnavailable) {
		h.down.CompareAndSwap(nil, &err)
	}
	return err
}

// Unwrap is the store below.
func (h *hasty) Unwrap() blobs.Store { return h.Store }

// Get and the others are blobs.Store.
func (h *hasty) Get(ctx context.Context, key string, offset, length int64) (b []byte, err error) {
	err = h.try(ctx, func(ctx context.Context) (err error) { b, err = h.Store.Get(ctx, key, offset, length); return err })
	return b, err
}

func (h *hasty) Put(ctx context.Context, key string, body []byte) error {
	return h.try(ctx, func(ctx context.Context) error { return h.Store.Put(ctx, key, body) })
}

func (h *hasty) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return h.try(ctx, func(ctx context.Context) error { return h.Store.PutIfAbsent(ctx, key, body) })
}

func (h *hasty) Delete(ctx context.Context, key string) error {
	return h.try(ctx, func(ctx context.Context) error { return h.Store.Delete(ctx, key) })
}

func (h *hasty) List(ctx context.Context, prefix, after string, limit int) (page []blobs.Object, err error) {
	err = h.try(ctx, func(ctx context.Context) (err error) { page, err = h.Store.List(ctx, prefix, after, limit); return err })
	return page, err
}

// phased is a store that changes once.
type phased struct {
	now  atomic.Pointer[phase]
	long phase
}

// phase is one store twice: with the patience of readers and with that of writers.
type phase struct{ read, write blobs.Store }

func (p *phased) settle() { p.now.Store(&p.long) }

func (p *phased) store() blobs.Store { return p.now.Load().read }

func (p *phased) writes() blobs.Store { return p.now.Load().write }

// Unwrap is the store in use.
func (p *phased) Unwrap() blobs.Store { return p.store() }

// Get and the others are blobs.Store.
func (p *phased) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	return p.store().Get(ctx, key, offset, length)
}

func (p *phased) Put(ctx context.Context, key string, body []byte) error {
	return p.writes().Put(ctx, key, body)
}

func (p *phased) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return p.writes().PutIfAbsent(ctx, key, body)
}

func (p *phased) Delete(ctx context.Context, key string) error { return p.writes().Delete(ctx, key) }

func (p *phased) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	return p.writes().List(ctx, prefix, after, limit)
}

func (p *phased) Presign(ctx context.Context, key string, expires time.Duration, o blobs.PresignOptions) (*url.URL, error) {
	return p.store().Presign(ctx, key, expires, o)
}

func (p *phased) URL() string { return p.store().URL() }

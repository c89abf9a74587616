// Package fault is a wrapper that fails as planned, for tests.
//
// A Plan says which call goes wrong and how; a test plans it, does its work and demands MustHaveFired, so that a
// fault that never happened cannot pass for one that was survived. SetOutage makes the store unreachable as a whole.
package fault

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"wsfs/blobs"
)

// Op is an operation of blobs.Store.
type Op string

// The operations; Any matches all of them.
const (
	Any         Op = ""
	Get         Op = "get"
	Put         Op = "put"
	PutIfAbsent Op = "put if absent"
	Delete      Op = "delete"
	List        Op = "list"
	Presign     Op = "presign"
)

// Kind is what goes wrong.
type Kind int

const (
	// Before fails with Err without doing anything.
	Before Kind = iota
	// After does the work and then fails with Err: the reply is lost.
	After
	// Delay waits Plan.Delay (or the end of the context) and then goes on as usual.
	Delay
	// Truncate returns only the first Plan.Bytes bytes of what a Get read, without an error.
	Truncate
	// Flip inverts bit Plan.Bit of what a Get returns or a put stores (counted from the first byte's lowest bit, modulo
	// the length).
	Flip
	// Hang waits for the end of the context and returns its error, having done nothing.
	Hang
)

// Plan is one planned fault.
type Plan struct {
	Op     Op     // which operation; Any for all
	Prefix string // of the key, of a List its prefix; empty for all
	Nth    int    // the first matching call that goes wrong, from 1; <= 0: 1
	Times  int    // how many matching calls from then on; 0: 1; < 0: all
	Kind   Kind
	Err    error         // Before, After; nil: blobs.ErrUnavailable
	Delay  time.Duration // Delay
	Bytes  int           // Truncate
	Bit    int           // Flip
}

// Planned is a Plan in force. It counts.
type Planned struct {
	Plan
	store *Store

	seen, fired int // guarded by store.mu
}

// Store is a failing blobs.Store.
type Store struct {
	inner blobs.Store

	mu     sync.Mutex // guards the rest and every Planned's counts
	plans  []*Planned
	outage bool
	hits   int // calls refused by the outage
}

var _ blobs.Store = (*Store)(nil)

// New returns a store over inner that does not fail until something is planned.
func New(inner blobs.Store) *Store { return &Store{inner: inner} }

// Unwrap returns the store below.
func (s *Store) Unwrap() blobs.Store { return s.inner }

// Plan puts p in force. Several plans may meet in one call: they act in the order they were planned in.
func (s *Store) Plan(p Plan) *Planned {
	if p.Nth <= 0 {
		p.Nth = 1
	}
	if p.Times == 0 {
		p.Times = 1
	}
	if p.Err == nil {
		p.Err = fmt.Errorf("planned fault: %w", blobs.ErrUnavailable)
	}
	pl := &Planned{Plan: p, store: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans = append(s.plans, pl)
	return pl
}

// Clear takes all plans out of force and ends an outage. What has fired stays counted.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans, s.outage = nil, false
}

// SetOutage switches an outage on or off: while it is on every call fails at once with blobs.ErrUnavailable and does
// nothing.
func (s *Store) SetOutage(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage = on
}

// OutageHits is how many calls outages have refused.
func (s *Store) OutageHits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

// Fired is how often the plan has gone wrong as planned.
func (p *Planned) Fired() int {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.fired
}

// Reporter is the part of testing.TB that MustHaveFired needs.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// MustHaveFired fails the test if the plan has never fired.
func (p *Planned) MustHaveFired(t Reporter) {
	t.Helper()
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.fired == 0 {
		t.Errorf("planned fault did not fire: op %q, prefix %q, call %d, kind %d; %d calls matched", p.Op, p.Prefix, p.Nth, p.Kind, p.seen)
	}
}

// MustHaveFired fails the test for every plan in force that has never fired.
func (s *Store) MustHaveFired(t Reporter) {
	t.Helper()
	s.mu.Lock()
	plans := slices.Clone(s.plans)
	s.mu.Unlock()
	for _, p := range plans {
		p.MustHaveFired(t)
	}
}

// match counts the call for every plan it matches and returns those that fire.
func (s *Store) match(op Op, key string) ([]Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outage {
		s.hits++
		return nil, fmt.Errorf("%s %s: planned outage: %w", op, key, blobs.ErrUnavailable)
	}
	var now []Plan
	for _, p := range s.plans {
		if p.Op != Any && p.Op != op || !strings.HasPrefix(key, p.Prefix) {
			continue
		}
		p.seen++
		if p.seen >= p.Nth && (p.Times < 0 || p.seen < p.Nth+p.Times) && p.applies(op) {
			p.fired++
			now = append(now, p.Plan)
		}
	}
	return now, nil
}

// applies tells whether the kind means anything for op: what has no body cannot be cut or flipped, and a plan that
// could do nothing must not count as fired.
func (p *Planned) applies(op Op) bool {
	switch p.Kind {
	case Truncate:
		return op == Get
	case Flip:
		return op == Get || op == Put || op == PutIfAbsent
	}
	return true
}

// call is one operation under the plans that fire for it. The operation itself is do, which also applies those plans
// that change a body.
func (s *Store) call(ctx context.Context, op Op, key string, do func(plans []Plan) error) error {
	plans, err := s.match(op, key)
	if err != nil {
		return err
	}
	for _, p := range plans {
		switch p.Kind {
		case Before:
			return fmt.Errorf("%s %s: %w", op, key, p.Err)
		case Hang:
			<-ctx.Done()
			return fmt.Errorf("%s %s: %w", op, key, ctx.Err())
		case Delay:
			t := time.NewTimer(p.Delay)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return fmt.Errorf("%s %s: %w", op, key, ctx.Err())
			}
		}
	}
	if err := do(plans); err != nil {
		return err
	}
	for _, p := range plans {
		if p.Kind == After {
			return fmt.Errorf("%s %s: reply lost: %w", op, key, p.Err)
		}
	}
	return nil
}

// damage applies the plans that change a body, on a copy.
func damage(plans []Plan, body []byte) []byte {
	for _, p := range plans {
		switch {
		case p.Kind == Truncate:
			body = body[:min(p.Bytes, len(body))]
		case p.Kind == Flip && len(body) > 0:
			body = slices.Clone(body)
			bit := p.Bit % (len(body) * 8)
			body[bit/8] ^= 1 << (bit % 8)
		}
	}
	return body
}

// Get implements blobs.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	var body []byte
	err := s.call(ctx, Get, key, func(plans []Plan) (err error) {
		body, err = s.inner.Get(ctx, key, offset, length)
		body = damage(plans, body)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.call(ctx, Put, key, func(plans []Plan) error { return s.inner.Put(ctx, key, damage(plans, body)) })
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.call(ctx, PutIfAbsent, key, func(plans []Plan) error { return s.inner.PutIfAbsent(ctx, key, damage(plans, body)) })
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.call(ctx, Delete, key, func([]Plan) error { return s.inner.Delete(ctx, key) })
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	var page []blobs.Object
	err := s.call(ctx, List, prefix, func([]Plan) (err error) {
		page, err = s.inner.List(ctx, prefix, after, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// Presign implements blobs.Store.
func (s *Store) Presign(ctx context.Context, key string, expires time.Duration, p blobs.PresignOptions) (*url.URL, error) {
	var u *url.URL
	err := s.call(ctx, Presign, key, func([]Plan) (err error) {
		u, err = s.inner.Presign(ctx, key, expires, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.inner.URL() }

package blobs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/fault"
	"wsfs/blobs/limit"
	"wsfs/blobs/mem"
	"wsfs/blobs/retry"
)

// bad is a store with one thing wrong.
type bad struct {
	blobs.Store
	putIfAbsent func(ctx context.Context, key string, body []byte) error
	get         func(ctx context.Context, key string, offset, length int64) ([]byte, error)
	list        func(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error)
	remove      func(ctx context.Context, key string) error
}

func (b *bad) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if b.putIfAbsent != nil {
		return b.putIfAbsent(ctx, key, body)
	}
	return b.Store.PutIfAbsent(ctx, key, body)
}

func (b *bad) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if b.get != nil {
		return b.get(ctx, key, offset, length)
	}
	return b.Store.Get(ctx, key, offset, length)
}

func (b *bad) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	if b.list != nil {
		return b.list(ctx, prefix, after, limit)
	}
	return b.Store.List(ctx, prefix, after, limit)
}

func (b *bad) Delete(ctx context.Context, key string) error {
	if b.remove != nil {
		return b.remove(ctx, key)
	}
	return b.Store.Delete(ctx, key)
}

// racy looks first and puts then: right one at a time, wrong in a race.
func racy(s blobs.Store) func(context.Context, string, []byte) error {
	var looked sync.WaitGroup
	looked.Add(2) // the first two see each other's absence
	var mu sync.Mutex
	n := 0
	return func(ctx context.Context, key string, body []byte) error {
		if _, err := s.Get(ctx, key, 0, -1); err == nil {
			return blobs.ErrExist
		}
		mu.Lock()
		n++
		first := n <= 2
		mu.Unlock()
		if first {
			looked.Done()
			looked.Wait()
		}
		return s.Put(ctx, key, body)
	}
}

// TestProbeFindsBadStores has one store for each field of the result.
func TestProbeFindsBadStores(t *testing.T) {
	cases := map[string]struct {
		spoil func(m blobs.Store, b *bad)
		says  string
		wrong func(r blobs.ProbeResult) bool // the field that must be false
	}{
		"ignores the condition": {func(m blobs.Store, b *bad) { b.putIfAbsent = m.Put }, "succeeded, want exactly 1",
			func(r blobs.ProbeResult) bool { return !r.Race && !r.Sequential }},
		"racy": {func(m blobs.Store, b *bad) { b.putIfAbsent = racy(m) }, "succeeded, want exactly 1",
			func(r blobs.ProbeResult) bool { return !r.Race && r.Sequential }},
		"stores the loser's body": {func(m blobs.Store, b *bad) {
			b.putIfAbsent = func(ctx context.Context, key string, body []byte) error {
				err := m.PutIfAbsent(ctx, key, body)
				if errors.Is(err, blobs.ErrExist) {
					return errors.Join(err, m.Put(ctx, key, body))
				}
				return err
			}
		}, "changed the object", func(r blobs.ProbeResult) bool { return !r.Sequential }},
		"always exists": {func(m blobs.Store, b *bad) {
			b.putIfAbsent = func(context.Context, string, []byte) error { return blobs.ErrExist }
		}, "none of 16", func(r blobs.ProbeResult) bool { return !r.Race }},
		"unsupported": {func(m blobs.Store, b *bad) {
			b.putIfAbsent = func(context.Context, string, []byte) error { return blobs.ErrUnsupported }
		}, "refuses conditional puts", func(r blobs.ProbeResult) bool { return !r.Race && !r.Sequential }},
		"ignores ranges": {func(m blobs.Store, b *bad) {
			b.get = func(ctx context.Context, key string, _, _ int64) ([]byte, error) { return m.Get(ctx, key, 0, -1) }
		}, "4 bytes from 3", func(r blobs.ProbeResult) bool { return !r.Range && r.Exclusive() }},
		"lists late": {func(m blobs.Store, b *bad) {
			b.list = func(context.Context, string, string, int) ([]blobs.Object, error) { return nil, nil }
		}, "list", func(r blobs.ProbeResult) bool { return !r.List && r.Exclusive() }},
		"ignores after": {func(m blobs.Store, b *bad) {
			b.list = func(ctx context.Context, prefix, _ string, limit int) ([]blobs.Object, error) {
				return m.List(ctx, prefix, "", limit)
			}
		}, "after that key", func(r blobs.ProbeResult) bool { return !r.List }},
		"keeps what is deleted": {func(m blobs.Store, b *bad) {
			b.remove = func(context.Context, string) error { return nil }
		}, "deleted object", func(r blobs.ProbeResult) bool { return !r.Delete }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := mem.New()
			b := &bad{Store: m}
			c.spoil(m, b)
			r, err := blobs.Probe(t.Context(), b, 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.OK() || !c.wrong(r) || !strings.Contains(r.String(), c.says) {
				t.Errorf("%+v, want one that says %q", r, c.says)
			}
		})
	}
}

// TestProbeThroughFaults runs the probe over a store that loses replies: package retry must hide them.
func TestProbeThroughFaults(t *testing.T) {
	f := fault.New(mem.New())
	f.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "probe/", Nth: 1, Kind: fault.After})
	f.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "probe/", Nth: 20, Times: 3, Kind: fault.Before})
	s := retry.New(limit.New(f, limit.Options{}), retry.Options{MinDelay: time.Millisecond})
	r, err := blobs.Probe(t.Context(), s, 16)
	if err != nil || !r.OK() {
		t.Errorf("%v, %v", r, err)
	}
	f.MustHaveFired(t)
}

func TestProbeCleansUpAndReportsErrors(t *testing.T) {
	for _, kind := range []error{blobs.ErrDenied, blobs.ErrNoStore, blobs.ErrUnavailable} {
		m := mem.New()
		f := fault.New(m)
		p := f.Plan(fault.Plan{Op: fault.Get, Nth: 2, Kind: fault.Before, Err: kind})
		if _, err := blobs.Probe(t.Context(), f, 4); !errors.Is(err, kind) {
			t.Errorf("probe: %v, want %v", err, kind)
		}
		p.MustHaveFired(t)
		if page, err := m.List(t.Context(), "", "", 0); err != nil || len(page) != 0 {
			t.Errorf("a failed probe left %v, %v", page, err)
		}
	}
}

// TestPermissions has a store that allows everything but one operation: that check fails, says why and what to do.
func TestPermissions(t *testing.T) {
	for name, op := range map[string]fault.Op{
		"put": fault.Put, "get": fault.Get, "range": fault.Get, "list": fault.List, "conditional put": fault.PutIfAbsent, "delete": fault.Delete,
	} {
		f := fault.New(mem.New())
		f.Plan(fault.Plan{Op: op, Times: -1, Kind: fault.Before, Err: blobs.ErrDenied})
		found := false
		for _, c := range blobs.Permissions(t.Context(), f) {
			if c.Name != name {
				continue
			}
			found = true
			if c.OK || c.Remedy == "" || !strings.Contains(c.Detail, blobs.ErrDenied.Error()) || !strings.Contains(c.Remedy, "s3:") {
				t.Errorf("%s denied: %+v", name, c)
			}
		}
		if !found {
			t.Errorf("no check named %q", name)
		}
		f.MustHaveFired(t)
	}
}

// skewed is a store whose clock is off.
type skewed struct {
	blobs.Store
	skew time.Duration
}

func (s skewed) ClockSkew(context.Context) (time.Duration, error) { return s.skew, nil }

func TestClockSkewThroughWrappers(t *testing.T) {
	s := retry.New(limit.New(fault.New(skewed{mem.New(), -10 * time.Minute}), limit.Options{}), retry.Options{})
	if skew, err := blobs.ClockSkew(t.Context(), s); err != nil || skew != -10*time.Minute {
		t.Errorf("skew %v, %v", skew, err)
	}
	if _, err := blobs.ClockSkew(t.Context(), mem.New()); !errors.Is(err, blobs.ErrUnsupported) {
		t.Errorf("a store without a clock: %v", err)
	}
	checks := blobs.Permissions(t.Context(), s)
	if c := checks[len(checks)-1]; c.Name != "clock" || c.OK || !strings.Contains(c.Detail, "10m0s") {
		t.Errorf("a clock ten minutes off: %+v", c)
	}
}

package fault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/fault"
	"wsfs/blobs/mem"
)

func TestContract(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blobs.Store { return fault.New(mem.New()) })
}

// record takes the place of a test.
type record struct{ failures int }

func (r *record) Helper()               {}
func (r *record) Errorf(string, ...any) { r.failures++ }

func TestKinds(t *testing.T) {
	ctx := t.Context()
	body := []byte("0123456789")
	m := mem.New()
	f := fault.New(m)
	mine := errors.New("mine")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	f.Plan(fault.Plan{Op: fault.Put, Kind: fault.Before, Err: mine})
	if err := f.Put(ctx, "k", body); !errors.Is(err, mine) {
		t.Errorf("before: %v", err)
	}
	if _, err := m.Get(ctx, "k", 0, -1); !errors.Is(err, blobs.ErrNotExist) {
		t.Errorf("before did the work: %v", err)
	}
	f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.After})
	if err := f.PutIfAbsent(ctx, "k", body); !errors.Is(err, blobs.ErrUnavailable) {
		t.Errorf("after: %v", err)
	}
	if got, err := m.Get(ctx, "k", 0, -1); err != nil || !bytes.Equal(got, body) {
		t.Errorf("after did not do the work: %q, %v", got, err)
	}
	f.Plan(fault.Plan{Op: fault.Get, Kind: fault.Truncate, Bytes: 4})
	if got, err := f.Get(ctx, "k", 0, -1); err != nil || string(got) != "0123" {
		t.Errorf("truncate: %q, %v", got, err)
	}
	f.Plan(fault.Plan{Op: fault.Get, Kind: fault.Flip, Bit: 8})
	if got, err := f.Get(ctx, "k", 0, -1); err != nil || string(got) != "0023456789" {
		t.Errorf("flip on the way out: %q, %v", got, err)
	}
	f.Plan(fault.Plan{Op: fault.Put, Kind: fault.Flip, Bit: 0})
	must(f.Put(ctx, "k", body))
	if got, err := m.Get(ctx, "k", 0, -1); err != nil || string(got) != "1123456789" || string(body) != "0123456789" {
		t.Errorf("flip on the way in: %q, %v; the caller's body is %q", got, err, body)
	}
	f.Plan(fault.Plan{Op: fault.List, Kind: fault.Hang})
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := f.List(short, "", "", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
	f.Plan(fault.Plan{Op: fault.Delete, Kind: fault.Delay, Delay: 15 * time.Millisecond})
	began := time.Now()
	must(f.Delete(ctx, "k"))
	if took := time.Since(began); took < 15*time.Millisecond {
		t.Errorf("delay took %v", took)
	}
	f.MustHaveFired(t)
}

// TestMatching wants the right calls to fail, by operation, prefix and number.
func TestMatching(t *testing.T) {
	f := fault.New(mem.New())
	p := f.Plan(fault.Plan{Op: fault.Put, Prefix: "packs/", Nth: 2, Times: 2})
	var failed []int
	for i := range 6 {
		if err := f.Put(t.Context(), fmt.Sprintf("packs/%d", i), nil); err != nil {
			failed = append(failed, i)
		}
		if err := f.Put(t.Context(), "index/x", nil); err != nil {
			t.Error(err)
		}
		if err := f.Delete(t.Context(), "packs/x"); err != nil {
			t.Error(err)
		}
	}
	if fmt.Sprint(failed) != "[1 2]" || p.Fired() != 2 {
		t.Errorf("calls %v failed, fired %d; want [1 2]", failed, p.Fired())
	}
	every := f.Plan(fault.Plan{Times: -1})
	for range 5 {
		if _, err := f.List(t.Context(), "", "", 0); err == nil {
			t.Error("a plan for all calls let one through")
		}
	}
	if every.Fired() != 5 {
		t.Errorf("fired %d times", every.Fired())
	}
}

func TestMustHaveFired(t *testing.T) {
	f := fault.New(mem.New())
	never := f.Plan(fault.Plan{Op: fault.Get, Prefix: "nobody/"})
	cut := f.Plan(fault.Plan{Op: fault.Any, Kind: fault.Truncate}) // only a Get can be cut
	if err := f.Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*fault.Planned{never, cut} {
		r := &record{}
		p.MustHaveFired(r)
		if r.failures != 1 {
			t.Errorf("a plan that did not fire passed: %+v", p.Plan)
		}
	}
	r := &record{}
	f.MustHaveFired(r)
	if r.failures != 2 {
		t.Errorf("%d of 2 plans were reported", r.failures)
	}
}

func TestOutage(t *testing.T) {
	m := mem.New()
	f := fault.New(m)
	f.SetOutage(true)
	blobtest.Refusals(t, f, blobs.ErrUnavailable)
	if f.OutageHits() != 6 {
		t.Errorf("%d calls refused, want 6", f.OutageHits())
	}
	f.SetOutage(false)
	if err := f.Put(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}

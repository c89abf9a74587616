package retry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/blobs/mem"
	"wsfs/blobs/retry"
)

func TestContract(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blobs.Store { return retry.New(mem.New(), retry.Options{}) })
}

// TestContractUnderFaults runs the whole suite over a store whose calls fail now and then, before and after the work.
func TestContractUnderFaults(t *testing.T) {
	var mu sync.Mutex
	fired := 0
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		rng := blobtest.Seed(t)
		f := fault.New(mem.New())
		for _, op := range []fault.Op{fault.Get, fault.Put, fault.PutIfAbsent, fault.Delete, fault.List} {
			for range 15 {
				kind := fault.Before
				if rng.IntN(2) == 0 {
					kind = fault.After
				}
				p := f.Plan(fault.Plan{Op: op, Nth: 1 + rng.IntN(40), Kind: kind})
				t.Cleanup(func() {
					mu.Lock()
					defer mu.Unlock()
					fired += p.Fired()
				})
			}
		}
		return retry.New(f, retry.Options{MinDelay: time.Microsecond, Attempts: 30})
	}, blobtest.EqualIsOurs)
	if fired < 100 {
		t.Errorf("only %d faults fired", fired)
	}
}

// fake is a clock that only sleeping moves.
type fake struct {
	now   time.Time
	slept []time.Duration
}

func (f *fake) options() retry.Options {
	return retry.Options{
		Now: func() time.Time { return f.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			f.now = f.now.Add(d)
			f.slept = append(f.slept, d)
			return ctx.Err()
		},
		Rand: func(n int64) int64 { return n - 1 },
	}
}

func TestBackoff(t *testing.T) {
	f := fault.New(mem.New())
	f.SetOutage(true)
	clock := &fake{}
	o := clock.options()
	o.Attempts, o.Budget, o.MinDelay, o.MaxDelay = 8, time.Hour, 100*time.Millisecond, time.Second
	told := 0
	o.OnRetry = func(op, key string, tries int, err error, wait time.Duration) {
		told++
		if op != "put" || key != "k" || tries != told || !errors.Is(err, blobs.ErrUnavailable) {
			t.Errorf("OnRetry(%s, %s, %d, %v, %v)", op, key, tries, err, wait)
		}
	}
	err := retry.New(f, o).Put(t.Context(), "k", nil)
	if !errors.Is(err, blobs.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	want := fmt.Sprint([]time.Duration{1e8 - 1, 2e8 - 1, 4e8 - 1, 8e8 - 1, 1e9 - 1, 1e9 - 1, 1e9 - 1})
	if fmt.Sprint(clock.slept) != want || f.OutageHits() != 8 || told != 7 {
		t.Errorf("slept %v, want %v; %d tries, told %d times", clock.slept, want, f.OutageHits(), told)
	}
}

// TestJitter wants delays all over the range, not at its end.
func TestJitter(t *testing.T) {
	f := fault.New(mem.New())
	f.SetOutage(true)
	clock := &fake{}
	o := clock.options()
	o.Rand, o.Attempts, o.Budget, o.MinDelay, o.MaxDelay = nil, 400, time.Hour, time.Second, time.Second
	if err := retry.New(f, o).Delete(t.Context(), "k"); err == nil {
		t.Fatal("no error")
	}
	var quarter [4]int
	for _, d := range clock.slept {
		if d < 0 || d >= time.Second {
			t.Fatalf("slept %v", d)
		}
		quarter[d/(250*time.Millisecond)]++
	}
	for i, n := range quarter {
		if n < 50 {
			t.Errorf("%d of 399 delays in quarter %d: %v", n, i, quarter)
		}
	}
}

func TestBudget(t *testing.T) {
	f := fault.New(mem.New())
	f.SetOutage(true)
	clock := &fake{}
	o := clock.options()
	o.Attempts, o.Budget, o.MinDelay, o.MaxDelay = 1000, 10*time.Second, time.Second, 3*time.Second
	_, err := retry.New(f, o).Get(t.Context(), "k", 0, -1)
	if !errors.Is(err, blobs.ErrUnavailable) || f.OutageHits() != 4+1 {
		t.Errorf("%d tries, slept %v, %v", f.OutageHits(), clock.slept, err)
	}
	if clock.now.After((time.Time{}).Add(10 * time.Second)) {
		t.Errorf("slept past the budget: %v", clock.slept)
	}
}

// TestPermanent wants one try where repeating is useless.
func TestPermanent(t *testing.T) {
	for _, kind := range []error{
		blobs.ErrDenied, blobs.ErrNoStore, blobs.ErrNotExist, blobs.ErrUnsupported, blobs.ErrClockSkew, blobs.ErrExist,
		context.Canceled, context.DeadlineExceeded, errors.New("a request that is wrong"),
	} {
		f := fault.New(mem.New())
		f.Plan(fault.Plan{Times: -1, Err: kind})
		c := count.New(f)
		clock := &fake{}
		s := retry.New(c, clock.options())
		for _, err := range []error{
			s.Put(t.Context(), "k", nil), s.PutIfAbsent(t.Context(), "k", nil), s.Delete(t.Context(), "k"), getErr(t, s), listErr(t, s), presignErr(t, s),
		} {
			if !errors.Is(err, kind) || errors.Is(err, blobs.ErrUnavailable) {
				t.Errorf("%v became %v", kind, err)
			}
		}
		if n := c.Snapshot().Total().Requests; n != 6 || len(clock.slept) != 0 {
			t.Errorf("%v: %d requests for 6 calls, slept %v", kind, n, clock.slept)
		}
	}
}

func getErr(t *testing.T, s blobs.Store) error { _, err := s.Get(t.Context(), "k", 0, -1); return err }
func listErr(t *testing.T, s blobs.Store) error {
	_, err := s.List(t.Context(), "", "", 0)
	return err
}
func presignErr(t *testing.T, s blobs.Store) error {
	_, err := s.Presign(t.Context(), "k", time.Minute, blobs.PresignOptions{})
	return err
}

// TestLostReply is the essay of the package comment, case by case.
func TestLostReply(t *testing.T) {
	ours, theirs := []byte("ours 1"), []byte("theirs")
	for name, c := range map[string]struct {
		prepare func(m blobs.Store, f *fault.Store)
		want    error
		stored  []byte
	}{
		"reply lost": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.After})
		}, nil, ours},
		"reply lost twice, one request lost": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.Before})
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Nth: 2, Kind: fault.After})
		}, nil, ours},
		"another one was first": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.Before})
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Nth: 2, Kind: fault.Before})
			must(t, m.Put(t.Context(), "n", theirs))
		}, blobs.ErrExist, theirs},
		"another one was first, no fault": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.Get, Prefix: "other"}) // must not fire: no read is due
			must(t, m.Put(t.Context(), "n", theirs))
		}, blobs.ErrExist, theirs},
		"equal body without a fault is not ours": {func(m blobs.Store, f *fault.Store) {
			must(t, m.Put(t.Context(), "n", ours))
		}, blobs.ErrExist, ours},
		"comparing fails at first": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.After})
			f.Plan(fault.Plan{Op: fault.Get, Kind: fault.Before, Times: 3})
		}, nil, ours},
		"comparing is denied": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.After})
			f.Plan(fault.Plan{Op: fault.Get, Kind: fault.Before, Err: blobs.ErrDenied})
		}, blobs.ErrDenied, ours},
		"comparing never works": {func(m blobs.Store, f *fault.Store) {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Kind: fault.After})
			f.Plan(fault.Plan{Op: fault.Get, Kind: fault.Before, Times: 9})
		}, blobs.ErrUnavailable, ours},
	} {
		t.Run(name, func(t *testing.T) {
			m := mem.New()
			f := fault.New(m)
			c.prepare(m, f)
			err := retry.New(f, (&fake{}).options()).PutIfAbsent(t.Context(), "n", ours)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if c.want != nil && c.want != blobs.ErrExist && errors.Is(err, blobs.ErrExist) {
				t.Errorf("%v claims that another one has the key", err)
			}
			got, err := m.Get(t.Context(), "n", 0, -1)
			if err != nil || !bytes.Equal(got, c.stored) {
				t.Errorf("stored %q, %v; want %q", got, err, c.stored)
			}
		})
	}
}

// TestRaceWithLostReplies has writers of one key whose replies get lost: still exactly one may believe that it won.
func TestRaceWithLostReplies(t *testing.T) {
	rng := blobtest.Seed(t)
	for round := range 200 {
		f := fault.New(mem.New())
		for range 6 {
			f.Plan(fault.Plan{Op: fault.PutIfAbsent, Nth: 1 + rng.IntN(10), Kind: []fault.Kind{fault.After, fault.Before}[rng.IntN(2)]})
		}
		errs := make([]error, 6)
		var wg sync.WaitGroup
		for i := range errs {
			s := retry.New(f, retry.Options{MinDelay: time.Microsecond, Attempts: 30})
			wg.Go(func() { errs[i] = s.PutIfAbsent(t.Context(), "n", fmt.Appendf(nil, "writer %d", i)) })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil {
				if winner >= 0 {
					t.Fatalf("round %d: writers %d and %d both won", round, winner, i)
				}
				winner = i
			} else if !errors.Is(err, blobs.ErrExist) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		got, err := f.Get(t.Context(), "n", 0, -1)
		if err != nil || winner < 0 || string(got) != fmt.Sprintf("writer %d", winner) {
			t.Fatalf("round %d: winner %d, stored %q, %v", round, winner, got, err)
		}
	}
}

// TestContextEnds wants a wait to end with the context and the error to tell both.
func TestContextEnds(t *testing.T) {
	f := fault.New(mem.New())
	f.SetOutage(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := retry.New(f, retry.Options{MinDelay: time.Hour, MaxDelay: time.Hour, Budget: 24 * time.Hour}).Put(ctx, "k", nil)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

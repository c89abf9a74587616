package limit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/fault"
	"wsfs/blobs/limit"
	"wsfs/blobs/mem"
)

func TestContract(t *testing.T) {
	for name, o := range map[string]limit.Options{
		"default":   {},
		"one":       {Requests: 1},
		"with rate": {Requests: 6, Reserved: 2, BytesPerSecond: 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			blobtest.Run(t, func(*testing.T) blobs.Store { return limit.New(mem.New(), o) })
		})
	}
}

// gate counts who is inside and lets nobody out until opened.
type gate struct {
	blobs.Store
	inside, most atomic.Int64
	open         chan struct{}
}

func (g *gate) Put(ctx context.Context, key string, body []byte) error {
	n := g.inside.Add(1)
	for {
		m := g.most.Load()
		if n <= m || g.most.CompareAndSwap(m, n) {
			break
		}
	}
	<-g.open
	g.inside.Add(-1)
	return g.Store.Put(ctx, key, body)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestBounds fills the store with bulk requests: they reach their bound and no more, and small ones still pass.
func TestBounds(t *testing.T) {
	g := &gate{Store: mem.New(), open: make(chan struct{})}
	s := limit.New(g, limit.Options{Requests: 8, Reserved: 3, SmallBytes: 10})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := s.Put(t.Context(), "bulk", make([]byte, 11)); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "5 bulk puts", func() bool { return g.inside.Load() == 5 })
	if err := s.Delete(t.Context(), "small"); err != nil { // would hang without the reserve
		t.Error(err)
	}
	for range 20 {
		wg.Go(func() {
			if err := s.Put(t.Context(), "small", make([]byte, 10)); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, "8 puts", func() bool { return g.inside.Load() == 8 })
	time.Sleep(20 * time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Put(ctx, "bulk", make([]byte, 11)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a bulk put that waits past its context: %v", err)
	}
	if _, err := s.List(ctx, "", "", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a list that waits past its context: %v", err)
	}
	close(g.open)
	wg.Wait()
	if most := g.most.Load(); most != 8 {
		t.Errorf("%d at once, want 8", most)
	}
	// All slots must have come back, also those of the calls that gave up.
	for range 50 {
		if err := s.Put(t.Context(), "bulk", make([]byte, 11)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlotsComeBack makes every kind of call fail and then uses the only slot again.
func TestSlotsComeBack(t *testing.T) {
	f := fault.New(mem.New())
	s := limit.New(f, limit.Options{Requests: 1, BytesPerSecond: 1 << 30})
	f.SetOutage(true)
	for range 3 {
		_, getErr := s.Get(t.Context(), "k", 0, -1)
		_, listErr := s.List(t.Context(), "", "", 0)
		for _, err := range []error{getErr, listErr, s.Put(t.Context(), "k", nil), s.PutIfAbsent(t.Context(), "k", nil), s.Delete(t.Context(), "k")} {
			if !errors.Is(err, blobs.ErrUnavailable) {
				t.Error(err)
			}
		}
	}
	f.SetOutage(false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
}

// TestRate moves 1 MiB at 2 MiB/s in both directions; a small request meanwhile does not wait its turn.
func TestRate(t *testing.T) {
	s := limit.New(mem.New(), limit.Options{BytesPerSecond: 2 << 20})
	began := time.Now()
	for range 8 {
		if err := s.Put(t.Context(), "k", make([]byte, 128<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond { // the last one's debt is not waited for
		t.Errorf("1 MiB went up in %v at 2 MiB/s", took)
	}
	if err := s.Put(t.Context(), "big", make([]byte, 8<<20)); err != nil { // 4 s of debt for those behind it
		t.Fatal(err)
	}
	began = time.Now()
	if err := s.Put(t.Context(), "small", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("a small put waited %v behind a large one", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, "k", 0, -1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a bulk get in the shadow of the debt: %v", err)
	}
}

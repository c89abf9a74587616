package count_test

import (
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/blobs/mem"
)

func TestContract(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blobs.Store { return count.New(mem.New()) })
}

func TestCounts(t *testing.T) {
	f := fault.New(mem.New())
	s := count.New(f)
	ctx := t.Context()
	check := func(err error, wantErr bool) {
		t.Helper()
		if (err != nil) != wantErr {
			t.Errorf("error %v", err)
		}
	}
	check(s.Put(ctx, "a", make([]byte, 100)), false)
	check(s.Put(ctx, "b", make([]byte, 7)), false)
	check(s.PutIfAbsent(ctx, "a", make([]byte, 30)), true)
	_, err := s.Get(ctx, "a", 10, 20)
	check(err, false)
	_, err = s.Get(ctx, "none", 0, -1)
	check(err, true)
	_, err = s.List(ctx, "", "", 0)
	check(err, false)
	check(s.Delete(ctx, "a"), false)
	_, err = s.Presign(ctx, "b", time.Minute, blobs.PresignOptions{})
	check(err, true)
	before := s.Snapshot()
	want := count.Snapshot{
		count.Get: {Requests: 2, Errors: 1, Down: 20}, count.Put: {Requests: 2, Up: 107}, count.PutIfAbsent: {Requests: 1, Errors: 1, Up: 30},
		count.Delete: {Requests: 1}, count.List: {Requests: 1}, count.Presign: {Requests: 1, Errors: 1},
	}
	if got := timeless(before); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if total := timeless(before).Total(); total != (count.Tally{Requests: 8, Errors: 3, Up: 137, Down: 20}) {
		t.Errorf("total %+v", total)
	}
	check(s.Put(ctx, "c", make([]byte, 5)), false)
	if diff := timeless(s.Snapshot().Sub(before)); diff != (count.Snapshot{count.Put: {Requests: 1, Up: 5}}) {
		t.Errorf("since then %+v", diff)
	}
	p := f.Plan(fault.Plan{Op: fault.Delete, Kind: fault.Delay, Delay: 20 * time.Millisecond})
	check(s.Delete(ctx, "c"), false)
	p.MustHaveFired(t)
	if took := s.Snapshot()[count.Delete].Time; took < 20*time.Millisecond {
		t.Errorf("a delete of 20 ms took %v", took)
	}
}

func timeless(s count.Snapshot) count.Snapshot {
	for k := range s {
		s[k].Time = 0
	}
	return s
}

func TestConcurrentCounts(t *testing.T) {
	s := count.New(mem.New())
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if err := s.Put(t.Context(), "k", []byte("abc")); err != nil {
					t.Error(err)
				}
				s.Snapshot()
			}
		})
	}
	wg.Wait()
	if got := s.Snapshot()[count.Put]; got.Requests != 1600 || got.Up != 4800 {
		t.Errorf("%+v", got)
	}
}

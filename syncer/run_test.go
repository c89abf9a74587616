package syncer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
)

// until waits for something that must come true soon.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// background runs the writer's loop; the returned function ends it and waits.
func (h *host) background(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.w.Run(ctx)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("Run does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func (h *host) at() uint64 { return h.w.Status().Head.Number }

func TestRunCommitsWhenQuiet(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{Quiet: 80 * time.Millisecond, Latest: 10 * time.Second, Clock: WallClock{}})
	h.create(metadata.RootIno, "before", []byte("1")) // dirty before Run, without a Touch
	h.background(t)
	until(t, "what was dirty at the start is committed", func() bool { return h.at() == 2 })
	began := time.Now()
	for i := range 20 { // busy: no commit meanwhile
		h.create(metadata.RootIno, fmt.Sprint(i), nil)
		h.w.Touch()
		time.Sleep(10 * time.Millisecond)
	}
	busy := time.Since(began)
	if n := h.at(); n != 2 && busy < time.Second {
		t.Errorf("commit %d during %s of steady work", n, busy)
	}
	until(t, "the work is committed", func() bool { return h.dirty() == 0 })
	n := h.at()
	time.Sleep(300 * time.Millisecond)
	if h.at() != n || h.w.asleep.Load() == false {
		t.Errorf("commit %d without a change", h.at())
	}
	h.create(metadata.RootIno, "after", nil)
	h.w.Touch()
	until(t, "the loop wakes up", func() bool { return h.at() == n+1 })
}

func TestRunCommitsAtTheLatest(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{Quiet: time.Hour, Latest: 100 * time.Millisecond, Clock: WallClock{}})
	h.background(t)
	until(t, "commits during steady work", func() bool {
		h.create(metadata.RootIno, fmt.Sprint(h.seq), nil)
		h.w.Touch()
		return h.at() >= 4
	})
}

func TestRunLooksAtLiveFiles(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{Quiet: 10 * time.Millisecond, Latest: 50 * time.Millisecond, Clock: WallClock{}})
	f := h.stageLive(h.make(metadata.RootIno, "live", 0o100644), []byte("0"))
	h.background(t)
	until(t, "the file is committed", func() bool { return h.at() == 2 })
	for i := range 3 {
		if _, err := f.WriteAt([]byte{byte('1' + i)}, 0); err != nil {
			t.Fatal(err)
		}
		until(t, "what nobody told of is committed", func() bool {
			head := h.w.Status().Head
			return filesOf(t, e.repo, &head)["live"] == string(rune('1'+i))
		})
	}
}

func TestRunThroughOutage(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{Quiet: time.Millisecond, Latest: 10 * time.Millisecond, Clock: WallClock{}})
	h.background(t)
	until(t, "the loop sleeps", func() bool { return h.w.asleep.Load() })
	e.fault.SetOutage(true)
	h.create(metadata.RootIno, "f", []byte("1"))
	h.w.Touch()
	until(t, "a try fails", func() bool { return h.w.Status().LastError != nil })
	s := h.w.Status()
	if !errors.Is(s.LastError, blobs.ErrUnavailable) || s.ErrorSince.IsZero() || s.Fenced != nil {
		t.Errorf("status in an outage: %+v", s)
	}
	hits := e.fault.OutageHits()
	until(t, "it tries again", func() bool { return e.fault.OutageHits() > hits })
	if again := h.w.Status(); !again.ErrorSince.Equal(s.ErrorSince) {
		t.Errorf("trouble since %s, then since %s", s.ErrorSince, again.ErrorSince)
	}
	e.fault.SetOutage(false)
	until(t, "it catches up", func() bool { return h.dirty() == 0 })
	until(t, "status says so", func() bool { s := h.w.Status(); return s.LastError == nil && s.ErrorSince.IsZero() })
}

func TestRunKeepsLeaseAndNoticesItsLoss(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	h := e.open("w", "a", WriterOptions{Clock: WallClock{}})
	lease, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a", TTL: time.Second, Clock: WallClock{}})
	if err != nil {
		t.Fatal(err)
	}
	h.w.lease = lease
	first, _, err := e.repo.LeaseHolder(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	h.background(t)
	until(t, "the lease is renewed", func() bool {
		now, _, err := e.repo.LeaseHolder(ctx, "w")
		return err == nil && now.Renewed.After(first.Renewed) && now.Epoch == h.w.headNow().Epoch
	})
	fenced := make(chan error, 1)
	h.w.OnFence(func(err error) { fenced <- err })
	if _, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "b", Takeover: true, Clock: WallClock{}}); err != nil {
		t.Fatal(err)
	}
	b := e.open("w", "b", WriterOptions{})
	if err := b.w.Takeover(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-fenced:
		if !errors.Is(err, ErrFenced) {
			t.Errorf("told %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the idle writer never noticed")
	}
}

func TestProgress(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", randomBytes(1, 3<<20))
	h.create(metadata.RootIno, "g", randomBytes(2, 3<<20))
	var seen []WriterStatus
	h.onOpen = func(uint64) { seen = append(seen, h.w.Status()) }
	h.w.o.Readers = 1
	h.commit(t)
	if len(seen) < 2 || !seen[1].Committing || seen[1].Total != 6<<20 || seen[1].Done != 3<<20 || seen[0].Done != 0 {
		t.Errorf("progress: %+v", seen)
	}
	if s := h.w.Status(); s.Committing || s.Commits != 1 || s.Packs != 1 || s.Uploaded < 6<<20 || s.LastCommit.IsZero() {
		t.Errorf("status after: %+v", s)
	}
}

func TestFollow(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	seen := make(chan uint64, 100)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	repo, err := OpenRepo(ctx, e.count, RepoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() {
		end <- Follow(ctx, repo, "w", time.Millisecond, func(c *Commit) error { seen <- c.Number; return nil })
	}()
	expect := func(want uint64) {
		t.Helper()
		for last := uint64(0); last < want; {
			select {
			case n := <-seen:
				if n <= last {
					t.Fatalf("commit %d after %d", n, last)
				}
				last = n
			case <-time.After(20 * time.Second):
				t.Fatalf("commit %d was not seen", want)
			}
		}
	}
	expect(1)
	e.fault.SetOutage(true)
	until(t, "the follower meets the outage", func() bool { return e.fault.OutageHits() > 0 })
	e.fault.SetOutage(false)
	for i := range 3 {
		h.create(metadata.RootIno, fmt.Sprint(i), nil)
		h.commit(t)
	}
	expect(4)
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := Follow(context.Background(), repo, "none", 0, nil); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("following none: %v", err)
	}
	stop := errors.New("enough")
	if err := Follow(context.Background(), repo, "w", 0, func(*Commit) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	for i := range 40 {
		bound := min(time.Second<<min(i, 10), time.Minute)
		if d := b.next(); d < bound/2 || d > bound {
			t.Errorf("pause %d is %s, bound %s", i, d, bound)
		}
	}
}

func BenchmarkTouch(b *testing.B) {
	e := newEnv(b)
	h := e.open("w", "a", WriterOptions{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.w.Touch()
		}
	})
}

func BenchmarkCommitSmallFiles(b *testing.B) {
	e := newEnv(b)
	h := e.open("w", "a", WriterOptions{})
	content := make([][]byte, 5000)
	for i := range content {
		content[i] = randomBytes(uint64(i), 4096)
	}
	for round := range b.N {
		b.StopTimer()
		clear(h.known)
		dir := h.mkdir(metadata.RootIno, fmt.Sprint(round))
		for i, c := range content {
			h.create(dir, fmt.Sprint(i), c)
		}
		b.StartTimer()
		h.commit(b)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(content)), "us/file")
}

func BenchmarkCommitLargeFile(b *testing.B) {
	content := randomBytes(1, 64<<20)
	b.SetBytes(int64(len(content)))
	for range b.N {
		b.StopTimer()
		e := newEnv(b)
		h := e.open("w", "a", WriterOptions{})
		h.create(metadata.RootIno, "large", content)
		b.StartTimer()
		h.commit(b)
	}
}

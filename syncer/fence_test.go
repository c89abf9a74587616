package syncer

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/metadata"
)

func expectFenced(t *testing.T, h *host, theirs *Commit) {
	t.Helper()
	dirty := h.dirty()
	var told error
	h.w.OnFence(func(err error) { told = err })
	for range 2 {
		_, err := h.w.Commit(context.Background(), "")
		var fenced *FencedError
		if !errors.As(err, &fenced) || !errors.Is(err, ErrFenced) {
			t.Fatalf("commit of a fenced writer: %v", err)
		}
		if fenced.Theirs.Number != theirs.Number || fenced.Theirs.Nonce != theirs.Nonce {
			t.Errorf("fenced by %+v, want %+v", fenced.Theirs, theirs)
		}
	}
	if err := h.w.Takeover(context.Background()); !errors.Is(err, ErrFenced) {
		t.Errorf("takeover by a fenced writer: %v", err)
	}
	if h.dirty() != dirty || dirty == 0 {
		t.Errorf("%d keys dirty, before the fence %d", h.dirty(), dirty)
	}
	if !errors.Is(told, ErrFenced) || h.w.Status().Fenced == nil {
		t.Errorf("told %v, status %+v", told, h.w.Status())
	}
}

func TestTwoWriters(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{})
	a.create(metadata.RootIno, "base", []byte("base"))
	base := a.commit(t)
	b := e.open("w", "b", WriterOptions{})
	a.create(metadata.RootIno, "ours", []byte("a"))
	b.create(metadata.RootIno, "theirs", []byte("b"))
	c := b.commit(t)
	if c.Number != 3 || c.Epoch != base.Epoch+1 {
		t.Errorf("commit %d, epoch %d", c.Number, c.Epoch)
	}
	before := e.count.Snapshot()
	expectFenced(t, a, c)
	if n := e.count.Snapshot().Sub(before)[count.PutIfAbsent].Requests; n != 1 {
		t.Errorf("%d conditional puts by a fenced writer, one finds it out", n)
	}
	d := b.commit(t)
	if *d != *c {
		t.Errorf("head is %+v", d)
	}
	expectFiles(t, e.repo, base, map[string]string{"base": "base"})
	expectFiles(t, e.repo, c, map[string]string{"base": "base", "theirs": "b"})
}

func TestTakeoverFencesAtOnce(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{})
	a.create(metadata.RootIno, "f", []byte("1"))
	base := a.commit(t)
	b := e.open("w", "b", WriterOptions{})
	put := e.fault.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "workspaces/", Kind: fault.After})
	if err := b.w.Takeover(context.Background()); err == nil {
		t.Fatal("the takeover in doubt says nothing")
	}
	put.MustHaveFired(t)
	c := b.commit(t) // finds the takeover done
	if c.Number != 3 || c.Epoch != base.Epoch+1 || c.Root != base.Root || c.Writer != "b" || c.Seq != 0 {
		t.Errorf("takeover: %+v", c)
	}
	a.create(metadata.RootIno, "g", []byte("2"))
	expectFenced(t, a, c)
	if err := b.w.Takeover(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.create(metadata.RootIno, "h", []byte("3"))
	c = b.commit(t)
	if c.Number != 5 || c.Epoch != base.Epoch+2 {
		t.Errorf("commit %d, epoch %d after the second takeover", c.Number, c.Epoch)
	}
	expectFiles(t, e.repo, c, map[string]string{"f": "1", "h": "3"})
}

// A takeover over our own commit that was never settled here, because the process ended, settles nothing: what the
// commit could not catch at rest must not count as stored.
func TestTakeoverSettlesNothing(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{StableTries: 1})
	f := a.stageLive(a.make(metadata.RootIno, "f", 0o100644), randomBytes(1, 200<<10))
	a.onOpen = func(uint64) {
		if _, err := f.WriteAt([]byte("x"), int64(a.freezes)); err != nil {
			t.Error(err)
		}
	}
	a.failing = errors.New("the process ends here")
	if _, err := a.w.Commit(context.Background(), ""); !errors.Is(err, a.failing) {
		t.Fatal(err)
	}
	a.failing, a.onOpen = nil, nil
	head, err := e.repo.Head(context.Background(), "w")
	if err != nil || head.Unstable != 1 {
		t.Fatalf("head %+v, %v", head, err)
	}
	dirty, tree := a.dirty(), OpenTree(head, a.r, nil)
	a.base, a.head = tree, *head // AdoptRebase
	a.w = NewWriter(e.repo, "w", head, tree, a.fakeLocal, nil, a.w.o)
	if err := a.w.Takeover(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a.dirty() != dirty || a.head.Number != 3 || a.head.Epoch != head.Epoch+1 || a.head.Seq != head.Seq {
		t.Errorf("%d keys dirty, before the takeover %d; settled at %+v", a.dirty(), dirty, a.head)
	}
	want, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	expectFiles(t, e.repo, a.commit(t), map[string]string{"f": string(want)})
}

// Retention has removed what others put while we were asleep: our next number is free, and we must not take it.
func TestSleepingWriter(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{})
	a.create(metadata.RootIno, "f", []byte("1"))
	base := a.commit(t)
	a.create(metadata.RootIno, "mine", []byte("a"))
	b := e.open("w", "b", WriterOptions{})
	var last *Commit
	for _, name := range []string{"x", "y", "z"} {
		b.create(metadata.RootIno, name, []byte(name))
		last = b.commit(t)
	}
	for n := base.Number; n < last.Number; n++ {
		if err := e.inner.Delete(context.Background(), CommitKey("w", n)); err != nil {
			t.Fatal(err)
		}
	}
	e.clock.advance(11 * time.Minute)
	before := e.count.Snapshot()
	expectFenced(t, a, last)
	if n := e.count.Snapshot().Sub(before)[count.PutIfAbsent].Requests; n != 0 {
		t.Errorf("%d conditional puts by a writer that was asleep", n)
	}
	head, err := e.repo.Head(context.Background(), "w")
	if err != nil || *head != *last {
		t.Errorf("head %+v, %v", head, err)
	}
}

func TestLongIdleWriterGoesOn(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{})
	for range 3 {
		a.create(metadata.RootIno, e.clock.Now().Format("150405"), []byte("1"))
		a.commit(t)
		e.clock.advance(24 * time.Hour / 7)
	}
	if n := a.w.Status().Head.Number; n != 4 {
		t.Errorf("head is %d", n)
	}
}

func TestWorkspaceDestroyedUnderWriter(t *testing.T) {
	e := newEnv(t)
	a := e.open("w", "a", WriterOptions{})
	a.create(metadata.RootIno, "f", []byte("1"))
	a.commit(t)
	a.create(metadata.RootIno, "g", []byte("1"))
	if _, err := e.repo.Destroy(context.Background(), "w", false); err != nil {
		t.Fatal(err)
	}
	e.clock.advance(time.Hour)
	expectFenced(t, a, &Commit{})
	if _, err := e.repo.Create(context.Background(), "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.w.Commit(context.Background(), ""); !errors.Is(err, ErrFenced) {
		t.Errorf("a fenced writer says %v", err)
	}
}

func TestResume(t *testing.T) {
	p := Position{Number: 5, Epoch: 3, Nonce: "n5", Writer: "a", Seq: 100}
	dirty := p
	dirty.Dirty = true
	for _, c := range []struct {
		what string
		head Commit
		p    Position
		want Adoption
	}{
		{"settled", Commit{Number: 5, Nonce: "n5", Writer: "a", Epoch: 3, Seq: 90}, dirty, AdoptNothing},
		{"not settled", Commit{Number: 6, Parent: 5, Nonce: "x", Writer: "a", Epoch: 3, Seq: 100}, dirty, AdoptRebase},
		{"several not settled", Commit{Number: 9, Parent: 8, Nonce: "x", Writer: "a", Epoch: 3, Seq: 99}, dirty, AdoptRebase},
		{"journal tail lost", Commit{Number: 6, Parent: 5, Nonce: "x", Writer: "a", Epoch: 3, Seq: 101}, dirty, AdoptReset},
		{"first of a new reign", Commit{Number: 6, Parent: 5, Nonce: "x", Writer: "a", Epoch: 4, Seq: 0}, dirty, AdoptRebase},
		{"ours, but another reigned between", Commit{Number: 8, Parent: 7, Nonce: "x", Writer: "a", Epoch: 5, Seq: 10}, dirty, AdoptFenced},
		{"theirs", Commit{Number: 6, Parent: 5, Nonce: "x", Writer: "b", Epoch: 4, Seq: 10}, dirty, AdoptFenced},
		{"theirs, nothing to lose", Commit{Number: 6, Parent: 5, Nonce: "x", Writer: "b", Epoch: 4}, p, AdoptForeign},
		{"made anew", Commit{Number: 5, Nonce: "other", Writer: "b", Epoch: 1}, dirty, AdoptFenced},
	} {
		if got := Resume(&c.head, c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

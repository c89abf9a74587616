package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/metadata"
)

// recorder notes the keys of finished puts in order.
type recorder struct {
	blobs.Store
	mu   sync.Mutex
	keys []string
}

func (r *recorder) note(key string, err error) error {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys = append(r.keys, key)
	}
	return err
}

func (r *recorder) Put(ctx context.Context, key string, body []byte) error {
	return r.note(key, r.Store.Put(ctx, key, body))
}

func (r *recorder) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return r.note(key, r.Store.PutIfAbsent(ctx, key, body))
}

// fill makes a commit's worth of changes: several packs at a small target.
func fill(h *host, seed uint64) map[string]string {
	want := map[string]string{}
	dir := h.mkdir(metadata.RootIno, "dir")
	for i := range 30 {
		content := randomBytes(seed*1000+uint64(i), 10000+i*100)
		name := fmt.Sprintf("f%d", i)
		h.create(dir, name, content)
		want["dir/"+name] = string(content)
	}
	large := randomBytes(seed, 1<<20)
	h.create(metadata.RootIno, "large", large)
	want["large"] = string(large)
	return want
}

func TestOrderOfPuts(t *testing.T) {
	e := newEnv(t)
	rec := &recorder{Store: e.inner}
	repo, err := OpenRepo(context.Background(), rec, RepoOptions{Clock: e.clock})
	if err != nil {
		t.Fatal(err)
	}
	e.repo = repo
	h := e.open("w", "a", WriterOptions{PackTarget: 100 << 10})
	rec.keys = nil
	fill(h, 1)
	h.commit(t)
	n := len(rec.keys)
	if n < 6 {
		t.Fatalf("puts: %v", rec.keys)
	}
	for i, key := range rec.keys {
		want := "packs/"
		switch i {
		case n - 2:
			want = "index/"
		case n - 1:
			want = "workspaces/w/commits/"
		}
		if !strings.HasPrefix(key, want) {
			t.Errorf("put %d of %d is %s, want %s", i+1, n, key, want)
		}
	}
}

// Each put of a commit fails in turn, once without having happened and once with its reply lost. After each failure the
// head is whole, and the next try completes.
func TestEachPutFails(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Before, fault.After} {
		for nth := 1; ; nth++ {
			e := newEnv(t)
			h := e.open("w", "a", WriterOptions{PackTarget: 100 << 10})
			h.create(metadata.RootIno, "old", []byte("old"))
			before := h.commit(t)
			want := fill(h, 2)
			want["old"] = "old"
			put := e.fault.Plan(fault.Plan{Op: fault.Put, Nth: nth, Kind: kind})
			_, err := h.w.Commit(context.Background(), "")
			if put.Fired() == 0 {
				e.fault.Clear()
				if err != nil {
					t.Fatal(err)
				}
				if nth < 7 {
					t.Fatalf("only %d puts went out", nth-1)
				}
				break
			}
			e.expectFailed(h, nth, err, before)
			e.fault.Clear()
			expectFiles(t, e.repo, h.commit(t), want)
		}
	}
}

func (e *env) expectFailed(h *host, nth int, err error, before *Commit) {
	e.t.Helper()
	if !errors.Is(err, blobs.ErrUnavailable) {
		e.t.Fatalf("put %d failed: the commit says %v", nth, err)
	}
	head, err := e.repo.Head(context.Background(), "w")
	if err != nil || *head != *before {
		e.t.Fatalf("put %d failed: head %+v, %v", nth, head, err)
	}
	expectFiles(e.t, e.repo, head, map[string]string{"old": "old"})
	if s := h.w.Status(); s.LastError == nil || s.ErrorSince.IsZero() || s.Committing || h.dirty() == 0 {
		e.t.Errorf("put %d failed: status %+v, %d dirty", nth, s, h.dirty())
	}
}

// A retry does not upload again what became durable.
func TestRetryReusesChunks(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{PackTarget: 100 << 10, Uploads: 1})
	want := fill(h, 3)
	put := e.fault.Plan(fault.Plan{Op: fault.Put, Prefix: "index/"})
	if _, err := h.w.Commit(context.Background(), ""); err == nil {
		t.Fatal("no error")
	}
	put.MustHaveFired(t)
	before := e.count.Snapshot()
	c := h.commit(t)
	if up := e.count.Snapshot().Sub(before).Total().Up; up > 50<<10 {
		t.Errorf("the retry uploaded %d bytes", up)
	}
	expectFiles(t, e.repo, c, want)
	// The chunks of the failed try are in the index all the same.
	other := newFakeLocal(t, h.base, c)
	if n, err := e.repo.LoadIndexes(context.Background(), other); err != nil || n != 1 || len(other.known) < 31 {
		t.Errorf("%d index objects, %d chunks, %v", n, len(other.known), err)
	}
}

func TestLostReplyOfCommitPut(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", []byte("1"))
	put := e.fault.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "workspaces/", Kind: fault.After})
	if _, err := h.w.Commit(context.Background(), ""); !errors.Is(err, blobs.ErrUnavailable) {
		t.Fatalf("the commit in doubt says %v", err)
	}
	put.MustHaveFired(t)
	head, err := e.repo.Head(context.Background(), "w")
	if err != nil || head.Number != 2 {
		t.Fatalf("head %+v, %v", head, err)
	}
	h.create(metadata.RootIno, "g", []byte("2"))
	c := h.commit(t)
	if c.Number != 3 || len(h.history) != 2 || h.history[0].Commit != *head {
		t.Errorf("commit %d after %d settlements", c.Number, len(h.history))
	}
	expectFiles(t, e.repo, head, map[string]string{"f": "1"})
	expectFiles(t, e.repo, c, map[string]string{"f": "1", "g": "2"})
}

// A commit in doubt that did not happen is put again as it was, though the live side has moved on.
func TestCommitInDoubtDidNotHappen(t *testing.T) {
	for _, late := range []time.Duration{0, time.Hour} {
		e := newEnv(t)
		h := e.open("w", "a", WriterOptions{})
		h.create(metadata.RootIno, "f", []byte("1"))
		put := e.fault.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "workspaces/"})
		if _, err := h.w.Commit(context.Background(), ""); err == nil {
			t.Fatal("no error")
		}
		put.MustHaveFired(t)
		e.clock.advance(late)
		h.create(metadata.RootIno, "g", []byte("2"))
		c := h.commit(t)
		want := uint64(3)
		if late > 0 { // too old: given up, and all is in one commit
			want = 2
		}
		if c.Number != want {
			t.Errorf("%s later: commit %d, want %d", late, c.Number, want)
		}
		expectFiles(t, e.repo, c, map[string]string{"f": "1", "g": "2"})
	}
}

// A late commit in doubt that did happen is found.
func TestCommitInDoubtFoundLate(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", []byte("1"))
	e.fault.Plan(fault.Plan{Op: fault.PutIfAbsent, Prefix: "workspaces/", Kind: fault.After})
	if _, err := h.w.Commit(context.Background(), ""); err == nil {
		t.Fatal("no error")
	}
	e.fault.MustHaveFired(t)
	e.clock.advance(time.Hour)
	if c := h.commit(t); c.Number != 2 || len(h.history) != 1 || h.dirty() != 0 {
		t.Errorf("commit %d, %d settlements, %d dirty", c.Number, len(h.history), h.dirty())
	}
}

func TestSettleFails(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", []byte("1"))
	h.failing = errors.New("disk full")
	if _, err := h.w.Commit(context.Background(), ""); !errors.Is(err, h.failing) {
		t.Fatalf("error is %v", err)
	}
	h.failing = nil
	before := e.count.Snapshot()
	if c := h.commit(t); c.Number != 2 || h.dirty() != 0 || len(h.history) != 1 {
		t.Errorf("commit %d, %d dirty, %d settlements", c.Number, h.dirty(), len(h.history))
	}
	if n := e.count.Snapshot().Sub(before); n[count.PutIfAbsent].Requests != 0 {
		t.Error("the commit was put again")
	}
}

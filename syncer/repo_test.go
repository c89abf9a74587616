package syncer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/count"
	"wsfs/blobs/mem"
	"wsfs/metadata"
)

// blind ignores the condition of conditional puts, as some servers do.
type blind struct{ blobs.Store }

func (b blind) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return b.Put(ctx, key, body)
}

func TestInit(t *testing.T) {
	ctx, store := context.Background(), mem.New()
	if _, err := OpenRepo(ctx, store, RepoOptions{}); !errors.Is(err, ErrNotInitialised) || !strings.Contains(err.Error(), "wsctl init") {
		t.Errorf("not initialised: %v", err)
	}
	r, err := Init(ctx, store, InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Format(); f.Version != 1 || f.Pool == "" || !f.Conditional || f.SingleWriter || f.Polynomial.Validate() != nil {
		t.Errorf("format %+v", f)
	}
	if _, err := Init(ctx, store, InitOptions{}); !errors.Is(err, blobs.ErrExist) || !strings.Contains(err.Error(), r.Format().Pool) {
		t.Errorf("initialised twice: %v", err)
	}
	again, err := OpenRepo(ctx, store, RepoOptions{})
	if err != nil || !reflect.DeepEqual(again.Format(), r.Format()) {
		t.Errorf("opened %+v, %v, want %+v", again, err, r.Format())
	}
	if left, err := store.List(ctx, "", "", 0); err != nil || len(left) != 1 {
		t.Errorf("Init leaves %v, %v", left, err)
	}
}

func TestInitOfBlindStore(t *testing.T) {
	ctx, store := context.Background(), blind{mem.New()}
	if _, err := Init(ctx, store, InitOptions{}); !errors.Is(err, ErrConditional) {
		t.Fatalf("a store that ignores conditions: %v", err)
	}
	if _, err := store.Get(ctx, formatKey, 0, -1); !errors.Is(err, blobs.ErrNotExist) {
		t.Errorf("a refused store has a format: %v", err)
	}
	r, err := Init(ctx, store, InitOptions{SingleWriter: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Format().Conditional || !r.Format().SingleWriter {
		t.Errorf("format %+v", r.Format())
	}
	if _, err := Init(ctx, store, InitOptions{SingleWriter: true}); !errors.Is(err, blobs.ErrExist) {
		t.Errorf("initialised twice: %v", err)
	}
	if _, err := r.Create(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	c := &Commit{Number: 1, Workspace: "w", Nonce: "other"}
	if theirs, err := r.putCommit(ctx, c); err != nil || theirs == nil {
		t.Errorf("commit 1 was replaced: %v, %v", theirs, err)
	}
}

func TestFormatErrors(t *testing.T) {
	ctx := context.Background()
	valid, err := json.Marshal(Format{Version: 1, Pool: "p", Polynomial: 0x3DA3358B4DC173, Compression: "zstd", Encryption: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		want     error
		says     string
	}{
		{`"version":1`, `"version":7`, ErrNewerFormat, "format 7, this program knows up to 1"},
		{`"version":1`, `"version":0`, ErrFormat, "format 0"},
		{`"version":1`, `"version":"x"`, ErrFormat, "wsfs.json"},
		{`"pool":"p"`, `"pool":""`, ErrFormat, "no pool"},
		{`"zstd"`, `"lz4"`, ErrFormat, "lz4"},
		{`"none"`, `"aes"`, ErrFormat, "aes"},
		{`"3da3358b4dc173"`, `"3da3358b4dc172"`, ErrFormat, "polynomial"},
		{`{`, ``, ErrFormat, "wsfs.json"},
	} {
		store := mem.New()
		body := bytes.Replace(valid, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(body, valid) {
			t.Fatalf("%s is not in %s", c.from, valid)
		}
		if err := store.Put(ctx, formatKey, body); err != nil {
			t.Fatal(err)
		}
		_, err := OpenRepo(ctx, store, RepoOptions{})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}

func TestValidName(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.d", "0", "_x", strings.Repeat("x", 63)} {
		if err := ValidName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, says := range map[string]string{"": "empty", ".": "begins", "..": "begins", "-x": "begins", "a/b": "'/'", "a b": "' '",
		"ä": "'ä'", "a\x00": `'\x00'`, strings.Repeat("x", 64): "64 bytes", "a\xff": "not allowed"} {
		if err := ValidName(name); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, should say %q", name, err, says)
		}
	}
	e, ctx := newEnv(t), context.Background()
	_, head := e.repo.Head(ctx, "a/b")
	_, create := e.repo.Create(ctx, "a/b")
	_, destroy := e.repo.Destroy(ctx, "a/b", false)
	_, commits := e.repo.Commits(ctx, "a/b", 0)
	_, acquire := e.repo.Acquire(ctx, "a/b", LeaseOptions{Writer: "a"})
	for _, err := range []error{head, create, destroy, commits, acquire} {
		if !errors.Is(err, ErrName) {
			t.Errorf("bad name: %v", err)
		}
	}
}

func TestWorkspaces(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	want := []string{"a", "a-b", "a.b", "a0", "aa", "b", "commits"}
	for _, name := range want {
		if _, err := e.repo.Create(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.repo.Acquire(ctx, "only-leased", LeaseOptions{Writer: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, stray := range []string{"workspaces/stray", "workspaces/a.stray"} {
		if err := e.inner.Put(ctx, stray, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := e.repo.Workspaces(ctx)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("workspaces %v, %v, want %v", got, err, want)
	}
	if _, err := e.repo.Create(ctx, "a"); !errors.Is(err, blobs.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
	if _, err := e.repo.Head(ctx, "nobody"); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("head of none: %v", err)
	}
	if _, err := e.repo.Head(ctx, "only-leased"); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("head of a lease: %v", err)
	}
}

func TestHeadAndCommits(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	h := e.open("w", "a", WriterOptions{})
	for i := range 5 {
		h.create(metadata.RootIno, fmt.Sprint(i), nil)
		e.clock.advance(time.Second)
		h.commit(t)
	}
	before := e.count.Snapshot()
	head, err := e.repo.Head(ctx, "w")
	if err != nil || head.Number != 6 {
		t.Fatalf("head %+v, %v", head, err)
	}
	s := e.count.Snapshot().Sub(before)
	if s[count.List].Requests != 1 || s[count.Get].Requests != 1 || s.Total().Requests != 2 {
		t.Errorf("head costs %d lists, %d gets", s[count.List].Requests, s[count.Get].Requests)
	}
	for limit, n := range map[int]int{0: 6, 1: 1, 4: 4, 6: 6, 9: 6} {
		commits, err := e.repo.Commits(ctx, "w", limit)
		if err != nil || len(commits) != n {
			t.Fatalf("limit %d: %d commits, %v", limit, len(commits), err)
		}
		for i, c := range commits {
			if c.Number != uint64(6-i) {
				t.Errorf("limit %d: commit %d at %d", limit, c.Number, i)
			}
		}
	}
	// Retention removed the first ones: the name is still taken.
	for n := range uint64(3) {
		if err := e.inner.Delete(ctx, CommitKey("w", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.repo.Create(ctx, "w"); !errors.Is(err, blobs.ErrExist) {
		t.Errorf("created over a living workspace: %v", err)
	}
	if commits, err := e.repo.Commits(ctx, "w", 0); err != nil || len(commits) != 3 {
		t.Errorf("%d commits, %v", len(commits), err)
	}
	// A commit under another's number or name is refused.
	body, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{CommitKey("w", 7), CommitKey("v", 6)} {
		if err := e.inner.Put(ctx, key, body); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"w", "v"} {
		if _, err := e.repo.Head(ctx, name); !errors.Is(err, ErrFormat) {
			t.Errorf("misplaced commit of %q: %v", name, err)
		}
	}
}

func TestDestroy(t *testing.T) {
	e, ctx := newEnv(t), context.Background()
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", nil)
	head := h.commit(t)
	e.open("w2", "a", WriterOptions{})
	lease, err := e.repo.Acquire(ctx, "w", LeaseOptions{Writer: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.inner.Put(ctx, "workspaces/w/snapshots/s", nil); err != nil {
		t.Fatal(err)
	}
	report, err := e.repo.Destroy(ctx, "w", true)
	if err != nil || report.Commits != 2 || report.Snapshots != 1 || report.Objects != 4 || report.Held == nil || report.Head != *head {
		t.Errorf("dry run: %+v, %v", report, err)
	}
	if _, err := e.repo.Destroy(ctx, "w", false); !errors.Is(err, ErrHeld) {
		t.Errorf("destroyed under a lease: %v", err)
	}
	if _, err := e.repo.Head(ctx, "w"); err != nil {
		t.Error(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if report, err := e.repo.Destroy(ctx, "w", false); err != nil || report.Objects != 3 || report.DryRun {
		t.Errorf("destroy: %+v, %v", report, err)
	}
	if left, err := e.inner.List(ctx, "workspaces/w/", "", 0); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := e.repo.Destroy(ctx, "w", false); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("destroyed twice: %v", err)
	}
	if names, err := e.repo.Workspaces(ctx); err != nil || !slices.Equal(names, []string{"w2"}) {
		t.Errorf("workspaces %v, %v", names, err)
	}
}

func TestCommitJSON(t *testing.T) {
	c := Commit{Number: math.MaxUint64 - 1, Parent: 3, Workspace: "w", Epoch: 4, Writer: "a", Host: "h",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Seq: math.MaxUint64, Nonce: "n", Message: "m \"x\" \xc3\xa4", Unstable: 2,
		Root:  blobs.Ref{ID: blobs.ID{1, 2}, Locator: blobs.Locator{Pack: blobs.PackID{3}, Offset: 4, Length: 5}, Raw: 6},
		Stats: CommitStats{Inodes: 1, Bytes: 2, Changed: 3, Files: 4, Read: 5, Chunks: 6, Packs: 7, Uploaded: 8}}
	body, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	var got Commit
	if err := json.Unmarshal(body, &got); err != nil || got != c {
		t.Errorf("%s became %+v, %v", body, got, err)
	}
	for _, bad := range []string{`{}`, `{"version":1}`, `[]`, `{"version":1,"number":1,"nonce":"n","root":{"id":"00"}}`} {
		if err := json.Unmarshal([]byte(bad), &got); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	newer := bytes.Replace(body, []byte(`"version":1`), []byte(`"version":2`), 1)
	if err := json.Unmarshal(newer, &got); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer commit: %v", err)
	}
	for _, n := range []uint64{1, 2, 1 << 40, math.MaxUint64} {
		if got, err := parseCommitKey(CommitKey("w", n)); err != nil || got != n {
			t.Errorf("key of %d says %d, %v", n, got, err)
		}
	}
	if CommitKey("w", 9) >= CommitKey("w", 8) {
		t.Error("a newer commit does not come first")
	}
}

func FuzzCommit(f *testing.F) {
	body, err := os.ReadFile("testdata/commit.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"version":1,"number":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Commit
		if json.Unmarshal(b, &c) != nil {
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Skip() // a time JSON cannot write
		}
		if err := json.Unmarshal(out, &again); err != nil || again.Number != c.Number || again.Root != c.Root || again.Nonce != c.Nonce {
			t.Errorf("%s became %+v, then %+v, %v", b, c, again, err)
		}
	})
}

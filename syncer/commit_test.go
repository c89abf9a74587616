package syncer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/blobs/mem"
	"wsfs/metadata"
)

// env is a pool in memory, its requests counted and its faults planned: count(fault(mem)).
type env struct {
	t     testing.TB
	inner *mem.Store
	fault *fault.Store
	count *count.Store
	repo  *Repo
	clock *fakeClock
}

func newEnv(t testing.TB) *env {
	t.Helper()
	e := &env{t: t, inner: mem.New(), clock: newFakeClock()}
	e.fault = fault.New(e.inner)
	e.count = count.New(e.fault)
	repo, err := Init(context.Background(), e.count, InitOptions{Clock: e.clock})
	if err != nil {
		t.Fatal(err)
	}
	e.repo = repo
	return e
}

// host is one host with a workspace open for writing.
type host struct {
	*fakeLocal
	w *Writer
	r *blobs.Reader
}

// open opens a workspace on a new host, creating it if need be.
func (e *env) open(name, writer string, o WriterOptions) *host {
	e.t.Helper()
	ctx := context.Background()
	head, err := e.repo.Head(ctx, name)
	if err != nil {
		if head, err = e.repo.Create(ctx, name); err != nil {
			e.t.Fatal(err)
		}
	}
	r := e.repo.Reader(blobs.ReaderOptions{})
	e.t.Cleanup(r.Close)
	base := OpenTree(head, r, metadata.NewPageCache(4<<20))
	o.Writer, o.StablePause = writer, time.Millisecond
	o.Clock = or[Clock](o.Clock, e.clock)
	h := &host{fakeLocal: newFakeLocal(e.t, base, head), r: r}
	h.w = NewWriter(e.repo, name, head, base, h.fakeLocal, nil, o)
	return h
}

func (h *host) commit(t testing.TB) *Commit {
	t.Helper()
	c, err := h.w.Commit(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	if h.opens != 0 {
		t.Errorf("%d staging files are still open", h.opens)
	}
	return c
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1], s[2], s[3] = byte(seed), byte(seed>>8), byte(seed>>16), byte(seed>>24)
	if _, err := rand.NewChaCha8(s).Read(b); err != nil {
		panic(err)
	}
	return b
}

func expectFiles(t testing.TB, repo *Repo, c *Commit, want map[string]string) {
	t.Helper()
	got := filesOf(t, repo, c)
	if maps.Equal(got, want) {
		return
	}
	for name, content := range want {
		if g, ok := got[name]; !ok || g != content {
			t.Errorf("commit %d: %s: there %v, %d bytes, want %d (equal: %v)", c.Number, name, ok, len(g), len(content), g == content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("commit %d: %s should not be there", c.Number, name)
		}
	}
}

func TestCommitOfEveryKindOfContent(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	want := map[string]string{}
	dir := h.mkdir(metadata.RootIno, "dir")
	for i, size := range []int{0, 1, 512, 513, 4096, 128 << 10, 200 << 10, 512<<10 - 1, 512 << 10, 512<<10 + 1, 3 << 20, 20 << 20} {
		content := randomBytes(uint64(i), size)
		name := fmt.Sprintf("f%d", size)
		h.create(dir, name, content)
		want["dir/"+name] = string(content)
	}
	c := h.commit(t)
	if c.Number != 2 || c.Parent != 1 || c.Epoch != 2 || c.Writer != "a" || c.Seq != h.seq || c.Unstable != 0 {
		t.Errorf("commit is %+v", c)
	}
	expectFiles(t, e.repo, c, want)
	if h.dirty() != 0 {
		t.Errorf("%d keys are still dirty", h.dirty())
	}
	head, err := e.repo.Head(context.Background(), "w")
	if err != nil || *head != *c {
		t.Errorf("head %+v, %v, want %+v", head, err, c)
	}

	// Everything becomes something else.
	for name := range want {
		content := randomBytes(99, len(want[name])/2)
		ino := h.lookup(dir, name[4:])
		h.write(ino, content, len(content) > 4096)
		want[name] = string(content)
	}
	expectFiles(t, e.repo, h.commit(t), want)

	for name := range want {
		h.unlink(dir, name[4:], false)
	}
	c = h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{})
	if c.Stats.Inodes != 2 || c.Stats.Bytes != 0 {
		t.Errorf("two directories are left, stats say %+v", c.Stats)
	}
}

func (h *host) lookup(dir metadata.Ino, name string) metadata.Ino {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.get(metadata.DirentKey(dir, name))
	if !ok {
		h.t.Fatalf("%q is not there", name)
	}
	d, err := metadata.DecodeDirent(v)
	if err != nil {
		h.t.Fatal(err)
	}
	return d.Ino
}

func TestCommitOfNothing(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	before := e.count.Snapshot()
	c := h.commit(t)
	if c.Number != 1 {
		t.Errorf("commit %d of nothing", c.Number)
	}
	if n := e.count.Snapshot().Sub(before).Total().Requests; n != 0 {
		t.Errorf("%d requests for nothing", n)
	}
	// A key that is dirty but has the value it had makes no commit either.
	h.op(func() { h.setInode(h.inode(metadata.RootIno)) })
	if c = h.commit(t); c.Number != 1 || h.dirty() != 0 {
		t.Errorf("commit %d, %d keys dirty", c.Number, h.dirty())
	}
	if n := e.count.Snapshot().Sub(before)[count.Put].Requests; n != 0 {
		t.Errorf("%d puts for nothing", n)
	}
}

// The cost in requests is part of the design: see docs/design.md.
func TestCommitCost(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	cost := func(what string, puts, conditional, others int64, do func()) {
		t.Helper()
		do()
		before := e.count.Snapshot()
		h.commit(t)
		s := e.count.Snapshot().Sub(before)
		if s[count.Put].Requests != puts || s[count.PutIfAbsent].Requests != conditional ||
			s.Total().Requests-s[count.Put].Requests-s[count.PutIfAbsent].Requests > others {
			t.Errorf("%s: %d puts, %d conditional puts, %d requests in all; want %d, %d and %d others", what,
				s[count.Put].Requests, s[count.PutIfAbsent].Requests, s.Total().Requests, puts, conditional, others)
		}
	}
	cost("metadata alone", 1, 1, 1, func() { h.mkdir(metadata.RootIno, "d") })
	cost("an inline file", 1, 1, 0, func() { h.create(metadata.RootIno, "f", []byte("hello")) })
	cost("a small file", 2, 1, 0, func() { h.create(metadata.RootIno, "g", randomBytes(1, 5000)) })
	cost("content that is known", 1, 1, 0, func() { h.create(metadata.RootIno, "h", randomBytes(1, 5000)) })
	cost("20,000 files of 1 KiB", 3, 1, 10, func() {
		for i := range 20000 {
			h.create(metadata.RootIno, fmt.Sprintf("n%d", i), randomBytes(uint64(i), 1024))
		}
	})
	cost("a file deleted before", 1, 1, 10, func() {
		h.create(metadata.RootIno, "brief", randomBytes(7, 1<<20))
		h.unlink(metadata.RootIno, "brief", false)
	})
}

func TestOrphansAreNotCommitted(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	big := h.create(metadata.RootIno, "big", randomBytes(1, 4<<20))
	h.setxattr(big, "user.x", []byte("1"))
	h.setxattr(big, "user.empty", []byte{})
	keep := h.create(metadata.RootIno, "keep", []byte("k"))
	h.setxattr(keep, "user.empty", []byte{})
	h.commit(t)
	h.unlink(metadata.RootIno, "big", true)
	brief := h.create(metadata.RootIno, "brief", randomBytes(2, 5000))
	h.setxattr(brief, "user.y", []byte("2"))
	h.unlink(metadata.RootIno, "brief", true)
	c := h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{"keep": "k"})
	for _, key := range [][]byte{metadata.InodeKey(big), metadata.XattrKey(big, "user.x"), metadata.ExtentKey(big, 0),
		metadata.InodeKey(brief), metadata.XattrKey(brief, "user.y")} {
		if _, ok, err := h.base.Get(context.Background(), key); ok || err != nil {
			t.Errorf("key %x: there %v, %v", key, ok, err)
		}
	}
	if v, ok, err := h.base.Get(context.Background(), metadata.XattrKey(keep, "user.empty")); !ok || len(v) != 0 || err != nil {
		t.Errorf("empty attribute: %v, %q, %v", ok, v, err)
	}
	// An O_TMPFILE inode may come back by a link.
	h.op(func() {
		n, p := h.inode(brief), h.inode(metadata.RootIno)
		n.Nlink, p.Entries = 1, p.Entries+1
		h.setInode(n)
		h.setInode(p)
		h.set(metadata.DirentKey(metadata.RootIno, "back"), metadata.AppendDirent(nil, metadata.Dirent{Ino: brief, Type: syscall.DT_REG}))
	})
	expectFiles(t, e.repo, h.commit(t), map[string]string{"keep": "k", "back": string(randomBytes(2, 5000))})
}

func TestSparseFile(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	want := make([]byte, 64<<20)
	ino := h.create(metadata.RootIno, "sparse", make([]byte, 200<<10))
	zeros := h.create(metadata.RootIno, "zeros", make([]byte, 1<<20))
	hole := h.create(metadata.RootIno, "hole", make([]byte, 200<<10))
	sparse := func(ino metadata.Ino, size int64, pieces ...int) {
		h.op(func() {
			n := h.inode(ino)
			f, err := os.OpenFile(h.path(n.Staging), os.O_RDWR|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(size); err != nil {
				t.Fatal(err)
			}
			for _, at := range pieces {
				piece := randomBytes(uint64(at), 64<<10)
				copy(want[at:], piece)
				if _, err := f.WriteAt(piece, int64(at)); err != nil {
					t.Fatal(err)
				}
			}
			n.Size, n.Version = size, h.seq
			h.setInode(n)
		})
	}
	sparse(ino, 64<<20, 0, 1<<20, 33<<20, 64<<20-64<<10)
	sparse(hole, 1<<30)
	h.commit(t)
	alloc := func(ino metadata.Ino) (int64, metadata.ContentKind) {
		v, _, err := h.base.Get(context.Background(), metadata.InodeKey(ino))
		if err != nil {
			t.Fatal(err)
		}
		n, err := metadata.DecodeInode(ino, v)
		if err != nil {
			t.Fatal(err)
		}
		return n.Alloc, n.Content
	}
	if a, k := alloc(ino); a != 4*64<<10 || k != metadata.ContentExtents {
		t.Errorf("sparse file: %d bytes allocated, kind %d", a, k)
	}
	if a, k := alloc(hole); a != 0 || k != metadata.ContentNone {
		t.Errorf("hole: %d bytes allocated, kind %d", a, k)
	}
	if a, _ := alloc(zeros); a != 1<<20 {
		t.Errorf("zeros that were written: %d bytes allocated", a)
	}
	h.unlink(metadata.RootIno, "hole", false)
	c := h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{"sparse": string(want), "zeros": string(make([]byte, 1<<20))})
	if got := c.Stats.Bytes; got != 4*64<<10+1<<20 {
		t.Errorf("stats say %d bytes", got)
	}
}

// One changed byte in a large file costs a chunk or two, also on a host that knows no index.
func TestOneByteChanged(t *testing.T) {
	e := newEnv(t)
	content := randomBytes(5, 64<<20)
	h := e.open("w", "a", WriterOptions{})
	ino := h.create(metadata.RootIno, "large", content)
	h.commit(t)
	for i, at := range []int{0, 30 << 20, 64<<20 - 1} {
		content[at] ^= 0xff
		h.write(ino, content, true)
		if i == 1 {
			clear(h.known)
		}
		before := e.count.Snapshot()
		c := h.commit(t)
		up := e.count.Snapshot().Sub(before).Total().Up
		if up >= 10<<20 || up == 0 {
			t.Errorf("byte %d changed: %d bytes uploaded", at, up)
		}
		t.Logf("byte %d changed: %d bytes uploaded", at, up)
		if got := filesOf(t, e.repo, c)["large"]; !bytes.Equal([]byte(got), content) {
			t.Errorf("byte %d changed: content is wrong", at)
		}
	}
}

// A clean file's extent keys may be dirty by themselves: a copy of extents, or a truncation.
func TestDirtyExtentsOfCleanFile(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	content := randomBytes(3, 6<<20)
	src := h.create(metadata.RootIno, "src", content)
	h.commit(t)
	copied := h.make(metadata.RootIno, "copy", syscall.S_IFREG|0o600)
	var cut int64
	h.op(func() {
		n, from := h.inode(copied), h.inode(src)
		n.Size, n.Alloc, n.Content, n.Version = from.Size, from.Alloc, metadata.ContentExtents, h.seq
		h.setInode(n)
		prefix := metadata.ExtentPrefix(src)
		err := h.base.Scan(context.Background(), prefix, metadata.PrefixEnd(prefix), func(key, value []byte) error {
			_, off, err := metadata.ParseExtentKey(key)
			if off > 0 && cut == 0 {
				cut = off
			}
			h.set(metadata.ExtentKey(copied, off), bytes.Clone(value))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	expectFiles(t, e.repo, h.commit(t), map[string]string{"src": string(content), "copy": string(content)})
	h.op(func() { // truncate src to its first extent, and copy to nothing
		n := h.inode(src)
		n.Size, n.Alloc, n.Version = cut, cut, h.seq
		h.setInode(n)
		prefix := metadata.ExtentPrefix(src)
		err := h.base.Scan(context.Background(), metadata.ExtentKey(src, cut), metadata.PrefixEnd(prefix), func(key, _ []byte) error {
			h.set(bytes.Clone(key), nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n = h.inode(copied) // its extents are left to the commit
		n.Size, n.Alloc, n.Content = 0, 0, metadata.ContentNone
		h.setInode(n)
	})
	expectFiles(t, e.repo, h.commit(t), map[string]string{"src": string(content[:cut]), "copy": ""})
}

func TestConcurrentCommitsShare(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	const callers = 16
	type result struct {
		name string
		c    *Commit
		err  error
	}
	results := make(chan result, callers)
	for i := range callers {
		go func() {
			name := fmt.Sprintf("f%d", i)
			h.create(metadata.RootIno, name, []byte(name))
			c, err := h.w.Commit(context.Background(), "")
			results <- result{name, c, err}
		}()
	}
	var last *Commit
	for range callers {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := filesOf(t, e.repo, r.c)[r.name]; got != r.name {
			t.Errorf("commit %d does not have %s, which was there before it was called for", r.c.Number, r.name)
		}
		if last == nil || last.Number < r.c.Number {
			last = r.c
		}
	}
	if last.Number > callers+1 {
		t.Errorf("%d commits for %d callers", last.Number-1, callers)
	}
	t.Logf("%d commits for %d callers", last.Number-1, callers)
}

func TestCommitGivenUp(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "f", randomBytes(1, 5000))
	plan := e.fault.Plan(fault.Plan{Op: fault.Put, Prefix: "packs/", Kind: fault.Hang})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.w.Commit(ctx, ""); err == nil {
		t.Fatal("a commit whose upload hangs succeeded")
	}
	plan.MustHaveFired(t)
	if s := h.w.Status(); s.Committing || s.LastError != nil {
		t.Errorf("status after giving up: %+v", s)
	}
	e.fault.Clear()
	expectFiles(t, e.repo, h.commit(t), map[string]string{"f": string(randomBytes(1, 5000))})
}

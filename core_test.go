package wsfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/mem"
	"wsfs/syncer"
)

var ctx = context.Background()

// rig is a pool in memory with cache directories of its own.
type rig struct {
	t     *testing.T
	store blobs.Store
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store := mem.New()
	if _, err := syncer.Init(ctx, store, syncer.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	return &rig{t, store}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimRight(p, "\n"))
	return len(p), nil
}

func (r *rig) options(dir string) Options {
	return Options{CacheDir: dir, Create: true, CommitQuiet: time.Hour, CommitMax: time.Hour,
		Log: slog.New(slog.NewTextHandler(testLog{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))}
}

// open opens a workspace that is checked and closed at the end of the test.
func (r *rig) open(name, dir string, change ...func(*Options)) *Workspace {
	r.t.Helper()
	o := r.options(dir)
	for _, c := range change {
		c(&o)
	}
	w, err := Open(ctx, r.store, name, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if w.closed.Load() {
			return
		}
		r.check(w)
		if err := w.Close(ctx); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return w
}

func (r *rig) check(w *Workspace) {
	r.t.Helper()
	rep, err := w.Check(ctx, CheckOptions{ReadData: true})
	if err != nil {
		r.t.Errorf("check: %v", err)
		return
	}
	for _, p := range rep.Problems {
		r.t.Errorf("check: %s", p)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func TestRoundTripThroughStore(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	files := map[string][]byte{}
	ok(t, w.MkdirAll(ctx, "/a/b/c", 0o755))
	for i, size := range []int{0, 1, 511, 512, 513, 4096, 100_000, 128 << 10, 128<<10 + 1, 3 << 20} {
		name := fmt.Sprintf("/a/b/f%d", i)
		data := bytes.Repeat([]byte(fmt.Sprintf("%d-", i)), size/2+1)[:size]
		ok(t, w.WriteFile(ctx, name, data, 0o640))
		ok(t, w.Lchtimes(ctx, name, 1e9+int64(i), 2e9+int64(i)*7))
		files[name] = data
	}
	ok(t, w.SymlinkPath(ctx, "../b/f3", "/a/link"))
	ok(t, w.LinkPath(ctx, "/a/b/f5", "/a/hard"))
	ok(t, w.SetXattrPath(ctx, "/a/b/f5", "user.color", []byte("blue\x00")))
	ok(t, w.MknodPath(ctx, "/a/fifo", syscall.S_IFIFO|0o600, 0))
	sparse := must[*File](t)(w.OpenFile(ctx, "/a/sparse", os.O_RDWR|os.O_CREATE, 0o600))
	must[int](t)(sparse.WriteAt([]byte("end"), 1<<20))
	ok(t, sparse.Close())
	before := must[Attr](t)(w.Lstat(ctx, "/a/b/f5"))
	c := must[*syncer.Commit](t)(w.Commit(ctx))
	if c.Number != 2 {
		t.Errorf("commit number %d, want 2", c.Number)
	}
	if again := must[*syncer.Commit](t)(w.Commit(ctx)); again.Number != 2 {
		t.Errorf("a commit of nothing made commit %d", again.Number)
	}
	if s := w.Status(); s.DirtyBytes != 0 {
		t.Errorf("%d dirty bytes after a commit", s.DirtyBytes)
	}
	r.check(w)
	ok(t, w.Close(ctx))

	w2 := r.open("demo", t.TempDir())
	for name, data := range files {
		got := must[[]byte](t)(w2.ReadFile(ctx, name))
		if !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes differ from the %d written", name, len(got), len(data))
		}
	}
	after := must[Attr](t)(w2.Lstat(ctx, "/a/b/f5"))
	if before != after {
		t.Errorf("attributes\n%+v became\n%+v", before, after)
	}
	hard := must[Attr](t)(w2.Lstat(ctx, "/a/hard"))
	if hard.Ino != after.Ino || hard.Nlink != 2 {
		t.Errorf("hard link: ino %d nlink %d, want %d and 2", hard.Ino, hard.Nlink, after.Ino)
	}
	if x := must[map[string][]byte](t)(w2.Xattrs(ctx, "/a/hard")); string(x["user.color"]) != "blue\x00" {
		t.Errorf("xattrs %q", x)
	}
	if s := must[string](t)(w2.ReadlinkPath(ctx, "/a/link")); s != "../b/f3" {
		t.Errorf("symlink target %q", s)
	}
	f := must[*File](t)(w2.OpenFile(ctx, "/a/sparse", os.O_RDONLY, 0))
	defer f.Close()
	if off := must[int64](t)(f.Seek(0, 3)); off != 1<<20 {
		t.Errorf("first data at %d, want %d", off, 1<<20)
	}
}

func TestFSTest(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	ok(t, w.MkdirAll(ctx, "/d/e", 0o755))
	ok(t, w.WriteFile(ctx, "/d/e/x.txt", []byte("hello"), 0o644))
	ok(t, w.WriteFile(ctx, "/top", bytes.Repeat([]byte("z"), 300_000), 0o644))
	ok(t, fstest.TestFS(w, "d/e/x.txt", "top"))
}

func TestOrphan(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	f := must[*File](t)(w.OpenFile(ctx, "/gone", os.O_RDWR|os.O_CREATE, 0o600))
	must[int](t)(f.Write([]byte("still here")))
	ok(t, w.Remove(ctx, "/gone"))
	_, err := w.Stat(ctx, "/gone")
	wantErr(t, err, fs.ErrNotExist)
	must[int](t)(f.WriteAt(bytes.Repeat([]byte("x"), 400_000), 5))
	a := must[Attr](t)(f.Attr())
	if a.Nlink != 0 || a.Size != 400_005 {
		t.Errorf("orphan has nlink %d size %d", a.Nlink, a.Size)
	}
	must[*syncer.Commit](t)(w.Commit(ctx))
	buf := make([]byte, 6)
	must[int](t)(f.ReadAt(buf, 0))
	if string(buf) != "stillx" {
		t.Errorf("orphan holds %q", buf)
	}
	ok(t, f.Close())
	_, err = w.GetAttr(ctx, a.Ino)
	wantErr(t, err, fs.ErrNotExist)
}

func TestReopenFromJournal(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.open("demo", dir)
	ok(t, w.WriteFile(ctx, "/small", []byte(strings.Repeat("s", 1000)), 0o600))
	ok(t, w.WriteFile(ctx, "/large", bytes.Repeat([]byte("l"), 1<<20), 0o600))
	ok(t, w.SyncLocal(ctx))
	ok(t, w.abandon())
	w2 := r.open("demo", dir)
	if s := w2.Status(); s.DirtyBytes != 1000+1<<20 {
		t.Errorf("dirty bytes %d after reopening", s.DirtyBytes)
	}
	if got := must[[]byte](t)(w2.ReadFile(ctx, "/large")); len(got) != 1<<20 || got[77] != 'l' {
		t.Errorf("large has %d bytes", len(got))
	}
	must[*syncer.Commit](t)(w2.Commit(ctx))
	ok(t, w2.Close(ctx))
	w3 := r.open("demo", t.TempDir())
	if got := must[[]byte](t)(w3.ReadFile(ctx, "/small")); len(got) != 1000 {
		t.Errorf("small has %d bytes", len(got))
	}
}

func TestRenameOver(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	ok(t, w.WriteFile(ctx, "/new", []byte("new"), 0o600))
	ok(t, w.WriteFile(ctx, "/old", []byte("old"), 0o600))
	f := must[*File](t)(w.OpenFile(ctx, "/old", os.O_RDONLY, 0))
	defer f.Close()
	ok(t, w.RenamePath(ctx, "/new", "/old"))
	if got := must[[]byte](t)(w.ReadFile(ctx, "/old")); string(got) != "new" {
		t.Errorf("after rename: %q", got)
	}
	if got := must[[]byte](t)(io.ReadAll(f)); string(got) != "old" {
		t.Errorf("through the old handle: %q", got)
	}
	ok(t, w.MkdirAll(ctx, "/x/y", 0o700))
	wantErr(t, w.RenamePath(ctx, "/x", "/x/y/z"), syscall.EINVAL)
	wantErr(t, w.RenamePath(ctx, "/old", "/x"), syscall.EISDIR)
	wantErr(t, w.RenamePath(ctx, "/x", "/old"), syscall.ENOTDIR)
	ok(t, w.MkdirPath(ctx, "/x2", 0o700))
	wantErr(t, w.RenamePath(ctx, "/x2", "/x"), syscall.ENOTEMPTY)
}

func TestReadOnlyFollows(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	ok(t, w.WriteFile(ctx, "/f", []byte("one"), 0o600))
	must[*syncer.Commit](t)(w.Commit(ctx))
	ro := r.open("demo", t.TempDir(), func(o *Options) { o.ReadOnly = true })
	if got := must[[]byte](t)(ro.ReadFile(ctx, "/f")); string(got) != "one" {
		t.Fatalf("read %q", got)
	}
	wantErr(t, ro.WriteFile(ctx, "/g", nil, 0o600), syscall.EROFS)
	ok(t, w.WriteFile(ctx, "/f", []byte("two"), 0o600))
	ok(t, w.WriteFile(ctx, "/g", []byte("three"), 0o600))
	must[*syncer.Commit](t)(w.Commit(ctx))
	deadline := time.Now().Add(10 * time.Second)
	for {
		got, err := ro.ReadFile(ctx, "/g")
		if err == nil && string(got) == "three" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the follower never showed the new commit")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := must[[]byte](t)(ro.ReadFile(ctx, "/f")); string(got) != "two" {
		t.Errorf("read %q", got)
	}
}

func TestSecondWriter(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	_, err := Open(ctx, r.store, "demo", r.options(t.TempDir()))
	wantErr(t, err, syncer.ErrHeld)
	ok(t, w.WriteFile(ctx, "/mine", []byte("unsynced"), 0o600))
	w2 := r.open("demo", t.TempDir(), func(o *Options) { o.Takeover = true })
	ok(t, w2.WriteFile(ctx, "/theirs", nil, 0o600))
	_, err = w.Commit(ctx)
	wantErr(t, err, syncer.ErrFenced)
	wantErr(t, w.WriteFile(ctx, "/more", nil, 0o600), syscall.EROFS)
	if got := must[[]byte](t)(w.ReadFile(ctx, "/mine")); string(got) != "unsynced" {
		t.Errorf("fenced workspace shows %q", got)
	}
	err = w.Close(ctx)
	wantErr(t, err, ErrUnsynced)
	ok(t, w2.Close(ctx))
	// The next opening is refused and says where the work is; rescuing it makes it a workspace beside the other.
	dir := w.CacheDir()
	_, err = Open(ctx, r.store, "demo", r.options(dir))
	var stranded *StrandedError
	if wantErr(t, err, syncer.ErrFenced); !errors.As(err, &stranded) || stranded.CacheDir != dir {
		t.Errorf("refusal %v", err)
	}
	must[*syncer.Commit](t)(Rescue(ctx, r.store, "demo", "rescued", r.options(dir)))
	_, err = Rescue(ctx, r.store, "demo", "again", r.options(dir))
	wantErr(t, err, ErrNothingToRescue)
	w = r.open("demo", dir)
	must[Attr](t)(w.Stat(ctx, "/theirs"))
	_, err = w.Stat(ctx, "/mine")
	wantErr(t, err, fs.ErrNotExist)
	rescued := r.open("rescued", t.TempDir())
	if got := must[[]byte](t)(rescued.ReadFile(ctx, "/mine")); string(got) != "unsynced" {
		t.Errorf("rescued workspace shows %q", got)
	}
}

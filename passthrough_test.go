package wsfs

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
	"wsfs/syncer"
)

// kernelFile creates a file as a kernel with passthrough does.
func kernelFile(t *testing.T, w *Workspace, name string) *Handle {
	t.Helper()
	_, h, err := w.Create(ctx, RootIno, name, 0o644, Owner{}, OpenOptions{Write: true, Passthrough: true, Excl: true})
	ok(t, err)
	if h.Backing() == nil {
		t.Fatal("no backing file")
	}
	return h
}

// TestPassthroughWritesAreSeen writes to the backing file behind the core's back, as a kernel does.
func TestPassthroughWritesAreSeen(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	h := kernelFile(t, w, "f")
	data := bytes.Repeat([]byte("kernel "), 100_000)
	must[int](t)(h.Backing().WriteAt(data, 0))
	a := must[Attr](t)(w.Lookup(ctx, RootIno, "f"))
	st := must[os.FileInfo](t)(h.Backing().Stat())
	if a.Size != int64(len(data)) || a.Mtime != st.ModTime().UnixNano() {
		t.Errorf("size %d mtime %d, want %d and %d", a.Size, a.Mtime, len(data), st.ModTime().UnixNano())
	}
	if got := must[[]byte](t)(w.ReadFile(ctx, "/f")); !bytes.Equal(got, data) {
		t.Error("another front end reads something else")
	}
	// Times that were set stay until the next write.
	must[Attr](t)(w.SetAttr(ctx, h.Ino(), SetAttr{Mask: SetMtime, Mtime: 1e18}))
	if a = must[Attr](t)(w.GetAttr(ctx, h.Ino())); a.Mtime != 1e18 {
		t.Errorf("mtime %d after it was set", a.Mtime)
	}
	must[int](t)(h.Backing().WriteAt([]byte("K"), 0))
	if a = must[Attr](t)(w.GetAttr(ctx, h.Ino())); a.Mtime == 1e18 {
		t.Error("a write did not move mtime")
	}
	// A commit while the kernel has it open stores what is there, and a second one has nothing to do.
	c := must[*syncer.Commit](t)(w.Commit(ctx))
	if again := must[*syncer.Commit](t)(w.Commit(ctx)); again.Number != c.Number || again.Unstable != 0 {
		t.Errorf("commit %d after %d, %d unstable", again.Number, c.Number, again.Unstable)
	}
	ok(t, h.Close())
	if s := w.Status(); s.DirtyBytes != 0 || s.DirtyOps != 0 {
		t.Errorf("closing an unchanged file left %d bytes and %d ops dirty", s.DirtyBytes, s.DirtyOps)
	}
	ok(t, w.Close(ctx))
	w2 := r.open("demo", t.TempDir())
	if got := must[[]byte](t)(w2.ReadFile(ctx, "/f")); got[0] != 'K' || len(got) != len(data) {
		t.Error("the store holds something else")
	}
}

// TestPassthroughSurvivesKill ends the process while a kernel has a file open for writing.
func TestPassthroughSurvivesKill(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.open("demo", dir)
	h := kernelFile(t, w, "f")
	ok(t, w.live.Flush())
	must[int](t)(h.Backing().WriteAt(bytes.Repeat([]byte("x"), 300_000), 0))
	ok(t, w.abandon()) // the record still says 0 bytes
	w2 := r.open("demo", dir)
	a := must[Attr](t)(w2.Stat(ctx, "/f"))
	if a.Size != 300_000 {
		t.Errorf("size %d after the process ended, want 300000", a.Size)
	}
	if got := must[[]byte](t)(w2.ReadFile(ctx, "/f")); len(got) != 300_000 || got[299_999] != 'x' {
		t.Errorf("%d bytes", len(got))
	}
}

// TestSmallPassthroughFilesGoBack: a slot given to a file that stays small is taken back.
func TestSmallPassthroughFilesGoBack(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	h := kernelFile(t, w, "f")
	number := h.f.number
	must[int](t)(h.Backing().WriteAt(bytes.Repeat([]byte("s"), 5000), 0))
	ok(t, h.Close())
	n := w.inodes[h.Ino()]
	if n.rec.Content != metadata.ContentJournal || n.rec.Staging != 0 {
		t.Errorf("content of kind %d, staging %d", n.rec.Content, n.rec.Staging)
	}
	ok(t, w.removeDoomed())
	if _, err := os.Stat(w.staging.path(number)); !os.IsNotExist(err) {
		t.Errorf("the staging file is still there: %v", err)
	}
	if got := must[[]byte](t)(w.ReadFile(ctx, "/f")); len(got) != 5000 || got[0] != 's' {
		t.Errorf("%d bytes", len(got))
	}
}

// TestReopenForWriting brings a clean file from the store back to a staging file for a kernel, and truncates it by open.
func TestReopenForWriting(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.open("demo", dir)
	ok(t, w.WriteFile(ctx, "/big", bytes.Repeat([]byte("0123456789"), 300_000), 0o600))
	ok(t, w.Close(ctx))
	w = r.open("demo", t.TempDir())
	a := must[Attr](t)(w.Stat(ctx, "/big"))
	ro := must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{Passthrough: true}))
	if ro.Backing() != nil {
		t.Error("a clean file that is only read was brought to a staging file")
	}
	ok(t, ro.Close())
	h := must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{Write: true, Passthrough: true}))
	if h.Backing() == nil {
		t.Fatal("no backing file")
	}
	second := must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{Passthrough: true}))
	if second.Backing() != h.Backing() {
		t.Error("two handles of one inode have different backing files")
	}
	must[int](t)(h.Backing().WriteAt([]byte("X"), 10))
	buf := make([]byte, 11)
	must[int](t)(second.ReadAt(ctx, buf, 0))
	if string(buf) != "0123456789X" {
		t.Errorf("read %q", buf)
	}
	ok(t, second.Close())
	ok(t, h.Close())
	h = must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{Write: true, Truncate: true, Passthrough: true}))
	if h.Backing() == nil {
		t.Fatal("no backing file for a large file that is written anew")
	}
	must[int](t)(h.Backing().WriteAt([]byte("short"), 0))
	ok(t, h.Close())
	if got := must[[]byte](t)(w.ReadFile(ctx, "/big")); string(got) != "short" {
		t.Errorf("%d bytes", len(got))
	}
}

// TestUnstableFile commits while a kernel never stops writing one file: the rest is committed, that file stays dirty.
func TestUnstableFile(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	h := kernelFile(t, w, "busy")
	ok(t, w.WriteFile(ctx, "/calm", []byte("calm"), 0o600))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := h.Backing().WriteAt([]byte(fmt.Sprint(i)), i%100_000); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	c := must[*syncer.Commit](t)(w.Commit(ctx))
	for try := 0; c.Unstable == 0 && try < 20; try++ { // the writer may have been off the processor
		c = must[*syncer.Commit](t)(w.Commit(ctx))
	}
	if c.Unstable != 1 {
		t.Errorf("%d unstable files, want 1", c.Unstable)
	}
	close(stop)
	<-stopped
	if w.Status().DirtyOps == 0 {
		t.Error("the busy file is not dirty any more")
	}
	c = must[*syncer.Commit](t)(w.Commit(ctx))
	if c.Unstable != 0 {
		t.Errorf("%d unstable files after it came to rest", c.Unstable)
	}
	ok(t, h.Close())
	ok(t, w.Close(ctx))
	w2 := r.open("demo", t.TempDir())
	if a := must[Attr](t)(w2.Stat(ctx, "/busy")); a.Size == 0 {
		t.Error("the busy file is empty in the store")
	}
	if got := must[[]byte](t)(w2.ReadFile(ctx, "/calm")); string(got) != "calm" {
		t.Errorf("calm holds %q", got)
	}
}

func TestAllocateAndHoles(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	ok(t, w.WriteFile(ctx, "/f", bytes.Repeat([]byte("d"), 1<<20), 0o600))
	a := must[Attr](t)(w.Stat(ctx, "/f"))
	h := must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{Write: true}))
	ok(t, h.Allocate(ctx, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 64<<10, 128<<10))
	wantErr(t, h.Allocate(ctx, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096), syscall.EOPNOTSUPP)
	ok(t, h.Allocate(ctx, 0, 1<<20, 4096))
	ok(t, h.Close())
	must[*syncer.Commit](t)(w.Commit(ctx))
	ok(t, w.Close(ctx))
	w = r.open("demo", t.TempDir())
	a = must[Attr](t)(w.Stat(ctx, "/f"))
	if a.Size != 1<<20+4096 {
		t.Errorf("size %d", a.Size)
	}
	h = must[*Handle](t)(w.OpenInode(ctx, a.Ino, OpenOptions{}))
	defer h.Close()
	if off := must[int64](t)(h.Seek(ctx, 0, unix.SEEK_HOLE)); off != 64<<10 {
		t.Errorf("hole at %d", off)
	}
	if off := must[int64](t)(h.Seek(ctx, 64<<10, unix.SEEK_DATA)); off != 192<<10 {
		t.Errorf("data at %d", off)
	}
	_, err := h.Seek(ctx, 1<<20+4096, unix.SEEK_DATA)
	wantErr(t, err, syscall.ENXIO)
	buf := make([]byte, 4)
	must[int](t)(h.ReadAt(ctx, buf, 192<<10-2))
	if string(buf) != "\x00\x00dd" {
		t.Errorf("read %q", buf)
	}
}

func TestTmpfileIsLinked(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	a, h, err := w.Tmpfile(ctx, RootIno, 0o600, Owner{}, OpenOptions{Write: true})
	ok(t, err)
	must[int](t)(h.WriteAt(ctx, []byte("tmp"), 0))
	ok(t, w.SetXattr(ctx, a.Ino, "user.k", []byte("v"), 0))
	must[*syncer.Commit](t)(w.Commit(ctx)) // passes over it
	must[Attr](t)(w.Link(ctx, a.Ino, RootIno, "named"))
	ok(t, h.Close())
	must[*syncer.Commit](t)(w.Commit(ctx))
	r.check(w)
	if got := must[[]byte](t)(w.ReadFile(ctx, "/named")); string(got) != "tmp" {
		t.Errorf("%q", got)
	}
	_, h, err = w.Tmpfile(ctx, RootIno, 0o600, Owner{}, OpenOptions{Write: true, Excl: true})
	ok(t, err)
	_, err = w.Link(ctx, h.Ino(), RootIno, "never")
	wantErr(t, err, syscall.ENOENT)
	ok(t, h.Close())
	_, err = w.GetAttr(ctx, h.Ino())
	wantErr(t, err, syscall.ENOENT)
}

// TestOrphanKeepsExtents unlinks a clean file that is open and commits: its extents leave the tree, not the open file.
func TestOrphanKeepsExtents(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	ok(t, w.WriteFile(ctx, "/f", bytes.Repeat([]byte("0123456789"), 200_000), 0o600))
	ok(t, w.Close(ctx))
	w = r.open("demo", t.TempDir())
	f := must[*File](t)(w.OpenFile(ctx, "/f", os.O_RDONLY, 0))
	ok(t, w.Remove(ctx, "/f"))
	must[*syncer.Commit](t)(w.Commit(ctx))
	buf := make([]byte, 10)
	must[int](t)(f.ReadAt(buf, 1_500_000))
	if string(buf) != "0123456789" {
		t.Errorf("read %q", buf)
	}
	ok(t, f.Close())
}

// TestBusyFile: background commits leave a large file alone while it is written, and store it once it is quiet.
func TestBusyFile(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir(), func(o *Options) { o.CommitQuiet, o.CommitMax = 300*time.Millisecond, 400*time.Millisecond })
	h := kernelFile(t, w, "busy")
	must[int](t)(h.Backing().WriteAt(make([]byte, 16<<20), 0))
	deadline := time.Now().Add(20 * time.Second)
	for i := int64(0); w.Status().Unstable == 0; i++ {
		must[int](t)(h.Backing().WriteAt([]byte(fmt.Sprint(i)), i))
		if i%50 == 0 {
			ok(t, w.WriteFile(ctx, "/other", []byte(fmt.Sprint(i)), 0o600))
		}
		if time.Now().After(deadline) {
			t.Fatal("no background commit passed over the busy file")
		}
		time.Sleep(5 * time.Millisecond)
	}
	for s := w.Status(); s.Unstable != 0 || s.DirtyOps != 0; s = w.Status() {
		if time.Now().After(deadline) {
			t.Fatalf("the file was not stored when it came to rest: %+v", s)
		}
		time.Sleep(20 * time.Millisecond)
	}
	ok(t, h.Close())
	for _, c := range must[[]syncer.Commit](t)(w.Log(ctx, 0)) {
		if c.Unstable > 0 && c.Stats.Read > 1<<20 {
			t.Errorf("commit %d read %d bytes with a busy file", c.Number, c.Stats.Read)
		}
	}
	ok(t, w.Close(ctx))
	w = r.open("demo", t.TempDir())
	if a := must[Attr](t)(w.Stat(ctx, "/busy")); a.Size != 16<<20 {
		t.Errorf("size %d in the store", a.Size)
	}
}

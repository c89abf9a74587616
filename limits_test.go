package wsfs

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	faulty "wsfs/blobs/fault"
	"wsfs/syncer"
)

// TestDirtyLimit: while commits work writers wait at the limit; while the store is away they get ENOSPC, and everything
// written before stays.
func TestDirtyLimit(t *testing.T) {
	r := newRig(t)
	store := faulty.New(r.store)
	r.store = store
	dir := t.TempDir()
	w := r.open("demo", dir, func(o *Options) {
		o.DirtyLimit, o.CommitQuiet, o.CommitMax = 4<<20, 50*time.Millisecond, 200*time.Millisecond
	})
	mib := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for i := range 24 { // six times the limit
		mib[0] = byte(i)
		ok(t, w.WriteFile(ctx, fmt.Sprintf("/f%d", i), mib, 0o600))
		if d := w.Status().DirtyBytes; d > 6<<20 {
			t.Fatalf("%d dirty bytes with a limit of 4 MiB", d)
		}
	}
	store.SetOutage(true)
	var err error
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; err == nil && time.Now().Before(deadline); i++ {
		mib[0] = byte(100 + i)
		err = w.WriteFile(ctx, fmt.Sprintf("/g%d", i), mib, 0o600)
	}
	wantErr(t, err, syscall.ENOSPC)
	if got := must[[]byte](t)(w.ReadFile(ctx, "/g0")); len(got) != len(mib) || got[0] != 100 {
		t.Errorf("%d bytes written before the limit", len(got))
	}
	ok(t, w.Remove(ctx, "/g0")) // making room goes on
	store.SetOutage(false)
	must[*syncer.Commit](t)(w.Commit(ctx))
	ok(t, w.WriteFile(ctx, "/after", mib, 0o600))
}

// TestCacheDiskFull: a full cache disk is ENOSPC to the writer; reading, removing and committing go on, and nothing is
// damaged.
func TestCacheDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=176m"); err != nil {
		t.Fatalf("mount tmpfs (the test runs as root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	r := newRig(t)
	w := r.open("demo", filepath.Join(disk, "cache"))
	mib := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var err error
	n := 0
	for ; err == nil && n < 200; n++ {
		mib[0] = byte(n)
		err = w.WriteFile(ctx, fmt.Sprintf("/f%d", n), mib, 0o600)
	}
	wantErr(t, err, syscall.ENOSPC)
	if n < 10 {
		t.Fatalf("full after %d MiB", n)
	}
	t.Logf("ENOSPC after %d MiB", n)
	if got := must[[]byte](t)(w.ReadFile(ctx, "/f3")); got[0] != 3 || len(got) != len(mib) {
		t.Errorf("%d bytes of a file written before", len(got))
	}
	must[*syncer.Commit](t)(w.Commit(ctx))
	// Committed content may leave the disk: the next writer finds room again.
	deadline := time.Now().Add(15 * time.Second)
	for err = syscall.ENOSPC; err != nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err = w.WriteFile(ctx, "/again", mib, 0o600)
	}
	ok(t, err)
	if got := must[[]byte](t)(w.ReadFile(ctx, "/f3")); got[0] != 3 {
		t.Error("a file whose local copy was dropped reads wrong")
	}
}

func TestWatch(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	watch := w.Watch(64)
	ok(t, w.MkdirPath(ctx, "/d", 0o700))
	ok(t, w.WriteFile(ctx, "/d/f", []byte("x"), 0o600))
	ok(t, w.RenamePath(ctx, "/d/f", "/g"))
	ok(t, w.Chmod(ctx, "/g", 0o640))
	ok(t, w.Remove(ctx, "/g"))
	c := must[*syncer.Commit](t)(w.Commit(ctx))
	var kinds []EventKind
	for len(kinds) == 0 || kinds[len(kinds)-1] != EventCommit {
		select {
		case e := <-watch.C:
			kinds = append(kinds, e.Kind)
			if e.Kind == EventRename && (e.Name != "f" || e.NewName != "g" || e.NewParent != RootIno) {
				t.Errorf("rename event %+v", e)
			}
			if e.Kind == EventCommit && e.Commit != c.Number {
				t.Errorf("commit event %+v", e)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("events %v, then nothing", kinds)
		}
	}
	want := []EventKind{EventCreate, EventCreate, EventWrite, EventRename, EventAttr, EventRemove, EventCommit}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
	watch.Close()
	if _, open := <-watch.C; open {
		t.Error("the channel is open after Close")
	}
	slow := w.Watch(16)
	defer slow.Close()
	for i := range 40 {
		ok(t, w.MkdirPath(ctx, fmt.Sprintf("/x%d", i), 0o700))
	}
	for range 16 {
		<-slow.C
	}
	ok(t, w.MkdirPath(ctx, "/last", 0o700))
	if e := <-slow.C; e.Kind != EventLost {
		t.Errorf("a slow watcher got %+v, want to be told of its loss", e)
	}
}

func TestStatfs(t *testing.T) {
	r := newRig(t)
	w := r.open("demo", t.TempDir())
	before := must[Statfs](t)(w.Statfs(ctx))
	ok(t, w.WriteFile(ctx, "/f", make([]byte, 3<<20), 0o600))
	after := must[Statfs](t)(w.Statfs(ctx))
	if used, was := after.Total-after.Free, before.Total-before.Free; used-was != 3<<20 {
		t.Errorf("used grew by %d, want 3 MiB", used-was)
	}
	if after.Files-after.FreeFiles != before.Files-before.FreeFiles+1 {
		t.Errorf("files %d, free %d after one more", after.Files, after.FreeFiles)
	}
}

package wsfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"wsfs/blobs/count"
	"wsfs/syncer"
)

// counted puts a counting wrapper over the rig's store.
func counted(r *rig) *count.Store {
	c := count.New(r.store)
	r.store = c
	return c
}

func puts(s count.Snapshot) (n, bytes int64) {
	return s[count.Put].Requests + s[count.PutIfAbsent].Requests, s[count.Put].Up + s[count.PutIfAbsent].Up
}

// words are what text is made of.
var words = func() (w [5000]string) {
	for i := range w {
		w[i] = fmt.Sprintf("word%d ", i)
	}
	return w
}()

// text is compressible content that no other seed has.
func text(rng *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = append(b, words[rng.IntN(len(words))]...)
	}
	return b[:n]
}

// packageTree writes what an install of packages looks like: many directories of small files and a few large ones.
func packageTree(t *testing.T, w *Workspace, files int) (total int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range files {
		dir := fmt.Sprintf("/node_modules/p%d/lib", i/40)
		if i%40 == 0 {
			ok(t, w.MkdirAll(ctx, dir, 0o755))
		}
		size := 200 + rng.IntN(16_000)
		if i%500 == 0 {
			size = 3 << 20
		}
		ok(t, w.WriteFile(ctx, fmt.Sprintf("%s/f%d.js", dir, i), text(rng, size), 0o644))
		total += int64(size)
	}
	return total
}

// TestRequestsOfManyFiles: an install costs at most one data put per 8 MiB of new compressed data plus a small constant,
// and a second workspace of the pool that installs the same uploads under 2 % of the bytes.
func TestRequestsOfManyFiles(t *testing.T) {
	r := newRig(t)
	c := counted(r)
	w := r.open("one", t.TempDir())
	before := c.Snapshot()
	total := packageTree(t, w, 3000)
	must[*syncer.Commit](t)(w.Commit(ctx))
	n, up := puts(c.Snapshot().Sub(before))
	t.Logf("3000 files, %d bytes: %d puts, %d bytes up", total, n, up)
	if limit := up/(8<<20) + 4; n > limit {
		t.Errorf("%d puts, at most %d wanted", n, limit)
	}
	if up < total/20 {
		t.Errorf("%d bytes up for %d bytes of new content: the test's content is no test", up, total)
	}
	w2 := r.open("two", t.TempDir())
	before = c.Snapshot()
	packageTree(t, w2, 3000)
	must[*syncer.Commit](t)(w2.Commit(ctx))
	n2, up2 := puts(c.Snapshot().Sub(before))
	t.Logf("again in another workspace: %d puts, %d bytes up, %.2f %%", n2, up2, 100*float64(up2)/float64(up))
	if up2*50 > up {
		t.Errorf("the second workspace uploaded %d of %d bytes, under 2 %% wanted", up2, up)
	}
}

// TestRequestsOfOneByte: one byte changed in a large file uploads under 10 MiB. WSFS_LONG=1 takes a file of 1 GiB.
func TestRequestsOfOneByte(t *testing.T) {
	size := int64(48 << 20)
	if os.Getenv("WSFS_LONG") != "" {
		size = 1 << 30
	}
	r := newRig(t)
	c := counted(r)
	w := r.open("one", t.TempDir())
	f := must[*File](t)(w.OpenFile(ctx, "/big", os.O_RDWR|os.O_CREATE, 0o600))
	random := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(block)) {
		must[int](t)(random.Read(block))
		must[int](t)(f.WriteAt(block, off))
	}
	must[*syncer.Commit](t)(w.Commit(ctx))
	before := c.Snapshot()
	must[int](t)(f.WriteAt([]byte{'!'}, size/2))
	ok(t, f.Close())
	must[*syncer.Commit](t)(w.Commit(ctx))
	n, up := puts(c.Snapshot().Sub(before))
	t.Logf("one byte in %d MiB: %d puts, %d bytes up", size>>20, n, up)
	if up > 10<<20 || n > 3 {
		t.Errorf("%d puts and %d bytes up, at most 3 and 10 MiB wanted", n, up)
	}
}

// TestRequestsOfMetadata: touching, changing modes and renaming a directory of 100,000 files uploads kilobytes, and the
// rename itself takes milliseconds whatever the directory holds.
func TestRequestsOfMetadata(t *testing.T) {
	r := newRig(t)
	c := counted(r)
	w := r.open("one", t.TempDir())
	ok(t, w.MkdirAll(ctx, "/dir", 0o755))
	dir := must[Attr](t)(w.Stat(ctx, "/dir"))
	for i := range 100_000 {
		_, h, err := w.Create(ctx, dir.Ino, fmt.Sprintf("file-%d", i), 0o644, Owner{}, OpenOptions{Write: true})
		ok(t, err)
		ok(t, h.Close())
	}
	must[*syncer.Commit](t)(w.Commit(ctx))
	ok(t, w.Close(ctx))
	w = r.open("one", t.TempDir())
	for name, change := range map[string]func() error{
		"rename": func() error { return w.RenamePath(ctx, "/dir", "/moved") },
		"touch":  func() error { return w.Lchtimes(ctx, "/", 1, 2) },
		"chmod":  func() error { return w.Chmod(ctx, "/", 0o700) },
	} {
		before, began := c.Snapshot(), time.Now()
		ok(t, change())
		took := time.Since(began)
		must[*syncer.Commit](t)(w.Commit(ctx))
		n, up := puts(c.Snapshot().Sub(before))
		t.Logf("%s: %v, %d puts, %d bytes up", name, took, n, up)
		if n > 2 || up > 100<<10 {
			t.Errorf("%s: %d puts and %d bytes up, at most 2 and 100 KiB wanted", name, n, up)
		}
	}
}

// TestRequestsOfNothing: a file made and removed before a commit uploads nothing.
func TestRequestsOfNothing(t *testing.T) {
	r := newRig(t)
	c := counted(r)
	w := r.open("one", t.TempDir())
	must[*syncer.Commit](t)(w.Commit(ctx))
	before := c.Snapshot()
	ok(t, w.WriteFile(ctx, "/tmp", bytes.Repeat([]byte("t"), 5<<20), 0o600))
	ok(t, w.Remove(ctx, "/tmp"))
	must[*syncer.Commit](t)(w.Commit(ctx))
	// Only the times of the directory that held it are left to store.
	if n, up := puts(c.Snapshot().Sub(before)); n > 2 || up > 8<<10 {
		t.Errorf("%d puts and %d bytes up", n, up)
	}
}

// TestColdOpen: opening from an empty cache costs a handful of requests, however many files there are.
func TestColdOpen(t *testing.T) {
	r := newRig(t)
	c := counted(r)
	w := r.open("one", t.TempDir())
	packageTree(t, w, 2000)
	must[*syncer.Commit](t)(w.Commit(ctx))
	ok(t, w.Close(ctx))
	before := c.Snapshot()
	w = r.open("one", t.TempDir())
	opened := c.Snapshot().Sub(before)
	t.Logf("open: %d gets, %d lists, %d puts", opened[count.Get].Requests, opened[count.List].Requests, opened[count.Put].Requests)
	if n := opened.Total().Requests; n > 12 {
		t.Errorf("%d requests to open, at most 12 wanted", n)
	}
	before = c.Snapshot()
	if l := must[[]DirEntry](t)(w.ReadDirPath(ctx, "/node_modules/p7/lib")); len(l) != 40 {
		t.Errorf("%d entries", len(l))
	}
	listed := c.Snapshot().Sub(before)
	if n := listed[count.Get].Requests; n > 4 {
		t.Errorf("%d gets to list a directory, at most 4 wanted", n)
	}
}

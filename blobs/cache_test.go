package blobs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mustCached checks that [off, off+n) of a pack is in the cache and right.
func mustCached(t testing.TB, c *PackCache, p PackID, body []byte, off, n int) {
	t.Helper()
	buf := make([]byte, n)
	if !c.ReadAt(p, int64(off), buf) {
		t.Fatalf("pack %s: %d bytes at %d are not cached", p, n, off)
	}
	if !bytes.Equal(buf, body[off:off+n]) {
		t.Fatalf("pack %s: %d bytes at %d are wrong", p, n, off)
	}
}

func TestCachePutAndRead(t *testing.T) {
	r := newRand(t)
	c := newCache(t, t.TempDir(), 100<<20)
	for _, n := range []int{1, 4095, cacheBlock - 1, cacheBlock, cacheBlock + 1, 3*cacheBlock + 1000} {
		p, body := NewPackID(), noise(r, n)
		before := c.Used()
		if c.ReadAt(p, 0, make([]byte, 1)) {
			t.Error("an unknown pack was found")
		}
		for range 2 {
			if err := c.Put(p, body); err != nil {
				t.Fatal(err)
			}
		}
		if used := c.Used() - before; used != int64(n) {
			t.Errorf("%d bytes counted for %d", used, n)
		}
		for range 20 {
			off := r.IntN(n)
			mustCached(t, c, p, body, off, 1+r.IntN(n-off))
		}
		if c.ReadAt(p, int64(n), make([]byte, 1)) || c.ReadAt(p, int64(n)-1, make([]byte, 2)) || c.ReadAt(p, -1, make([]byte, 1)) {
			t.Error("bytes outside the pack were found")
		}
	}
}

func TestCacheBlocks(t *testing.T) {
	r := newRand(t)
	dir := t.TempDir()
	c := newCache(t, dir, 100<<20)
	p, body := NewPackID(), noise(r, 5*cacheBlock+77)
	if !c.store(p, 2*cacheBlock, body[2*cacheBlock:3*cacheBlock]) || !c.store(p, 5*cacheBlock, body[5*cacheBlock:]) {
		t.Fatal("blocks were not cached")
	}
	check := func(c *PackCache) {
		t.Helper()
		mustCached(t, c, p, body, 2*cacheBlock, cacheBlock)
		mustCached(t, c, p, body, 5*cacheBlock+70, 7)
		for _, off := range []int64{0, 2*cacheBlock - 1, 3*cacheBlock - 1, 4 * cacheBlock, 5*cacheBlock - 1} {
			if c.ReadAt(p, off, make([]byte, 2)) {
				t.Errorf("2 bytes at %d were found", off)
			}
		}
		if used := c.Used(); used != cacheBlock+77 {
			t.Errorf("%d bytes used, want %d", used, cacheBlock+77)
		}
	}
	check(c)
	check(newCache(t, dir, 100<<20))
	if w := c.window(p, 5*cacheBlock, 4*cacheBlock); !bytes.Equal(w, body[5*cacheBlock:]) {
		t.Errorf("window at the end has %d bytes", len(w))
	}
	if w := c.window(p, 2*cacheBlock, 2*cacheBlock); w != nil {
		t.Errorf("window with an absent block has %d bytes", len(w))
	}
	if c.store(p, 100, body[:cacheBlock]) {
		t.Error("unaligned bytes were cached")
	}
	if s := c.Stats(); s.Faults != 1 { // the unaligned one
		t.Errorf("%+v", s)
	}
}

func TestCacheEvictsLeastRecent(t *testing.T) {
	r := newRand(t)
	c := newCache(t, t.TempDir(), 5*cacheBlock)
	var ids []PackID
	bodies := make(map[PackID][]byte)
	put := func() PackID {
		p := NewPackID()
		bodies[p] = noise(r, cacheBlock)
		if err := c.Put(p, bodies[p]); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for range 5 {
		ids = append(ids, put())
	}
	mustCached(t, c, ids[0], bodies[ids[0]], 5, 100) // now the most recent
	put()
	for i, want := range []bool{true, false, true, true, true} {
		if got := c.has(ids[i], 0, cacheBlock); got != want {
			t.Errorf("pack %d: cached %v, want %v", i, got, want)
		}
	}
	if freed := c.Evict(cacheBlock + 1); freed != 2*cacheBlock || c.Used() != 3*cacheBlock {
		t.Errorf("freed %d, %d left", freed, c.Used())
	}
	if !c.has(ids[0], 0, 1) {
		t.Error("the most recently read pack was evicted first")
	}
	checkCache(t, c)
	c.SetLimit(cacheBlock)
	if c.Used() != cacheBlock {
		t.Errorf("%d used after lowering the limit", c.Used())
	}
	if freed := c.Evict(100 * cacheBlock); freed != cacheBlock || c.Used() != 0 {
		t.Errorf("freed %d, %d left", freed, c.Used())
	}
	c.SetLimit(cacheBlock - 1)
	if p := put(); c.has(p, 0, 1) {
		t.Error("a pack over the limit was cached")
	}
}

// Somebody who reads a pack while it is evicted gets its bytes or a miss, never others.
func TestCacheConcurrent(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := newCache(t, t.TempDir(), 6*cacheBlock)
	bodies := make(map[PackID][]byte)
	var ids []PackID
	for i := range 6 {
		p := NewPackID()
		ids = append(ids, p)
		bodies[p] = noise(rand.New(rand.NewPCG(seed, uint64(i))), 2*cacheBlock+500)
	}
	var wg sync.WaitGroup
	var hits, misses int64
	var mu sync.Mutex
	for w := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 100+uint64(w)))
			h, m := int64(0), int64(0)
			for range 200 {
				p := ids[r.IntN(len(ids))]
				body := bodies[p]
				switch r.IntN(12) {
				case 0:
					c.Evict(int64(r.IntN(3 * cacheBlock)))
				case 1:
					c.Drop(p, int64(r.IntN(len(body))), 10)
				case 2, 3:
					i := r.IntN(3) * cacheBlock
					c.store(p, int64(i), body[i:min(i+cacheBlock, len(body))])
				case 4:
					c.keep(p, body)
				default:
					off := r.IntN(len(body))
					buf := make([]byte, 1+r.IntN(min(len(body)-off, 100<<10)))
					if !c.ReadAt(p, int64(off), buf) {
						m++
						continue
					}
					h++
					if !bytes.Equal(buf, body[off:off+len(buf)]) {
						t.Errorf("pack %s: %d wrong bytes at %d", p, len(buf), off)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			hits, misses = hits+h, misses+m
		})
	}
	wg.Wait()
	checkCache(t, c)
	if s := c.Stats(); s.Faults != 0 || hits == 0 || misses == 0 || s.Evicted == 0 || s.Dropped == 0 {
		t.Errorf("%d hits, %d misses, %+v", hits, misses, s)
	}
}

// TestCacheSurvivesKill kills a process in the middle of filling a cache, opens what it left, and finds only blocks
// that are whole and right.
func TestCacheSurvivesKill(t *testing.T) {
	if dir := os.Getenv("WSFS_TEST_CACHE"); dir != "" {
		fillForever(t, dir)
		return
	}
	r := newRand(t)
	dir := t.TempDir()
	total := 0
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCacheSurvivesKill$")
		cmd.Env = append(os.Environ(), "WSFS_TEST_CACHE="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 2+round)); err != nil { // so many packs are whole
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // reports the kill
		c, err := OpenPackCache(dir, 20<<20)
		if err != nil {
			t.Fatal(err)
		}
		checkCache(t, c)
		for id, e := range c.packs {
			for i, n := range e.lens {
				if n > 0 {
					total++
					mustCached(t, c, id, killBody(id), i*cacheBlock, int(n))
				}
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if total == 0 {
		t.Error("no block survived: nothing was tested")
	}
}

// killBody is the content of a pack, known from its name alone.
func killBody(p PackID) []byte {
	return noise(rand.New(rand.NewPCG(uint64(p[0]), 7)), 3*cacheBlock+5000)
}

func fillForever(t *testing.T, dir string) {
	c, err := OpenPackCache(dir, 20<<20)
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		p := NewPackID()
		c.keep(p, killBody(p))
		os.Stdout.Write([]byte{'.'})
	}
}

// A file whose last writer was stopped between two pages of a block: that block counts for nothing.
func TestCacheReopensTornFile(t *testing.T) {
	r := newRand(t)
	dir := t.TempDir()
	p, body := NewPackID(), noise(r, 4*cacheBlock)
	f, err := os.Create(filepath.Join(dir, p.String()+cacheSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]int{{0, cacheBlock}, {cacheBlock, cacheBlock + 8192}, {3*cacheBlock + 4096, 4 * cacheBlock}} {
		if _, err := f.WriteAt(body[part[0]:part[1]], int64(part[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, NewPackID().String()+cacheSuffix)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCache(t, dir, 100<<20) // checkCache proves that the torn parts were freed
	if c.Used() != cacheBlock || !c.has(p, 0, cacheBlock) {
		t.Errorf("%d bytes used, want one block", c.Used())
	}
	checkCache(t, c)
	if !c.store(p, 0, body) {
		t.Error("the torn blocks could not be filled")
	}
	mustCached(t, c, p, body, 0, len(body))
}

func TestCacheIgnoresForeignFiles(t *testing.T) {
	dir := t.TempDir()
	foreign := []string{"README", "abc.pack", NewPackID().String(), NewPackID().String() + ".pack.bak",
		"ABCDEF0123456789ABCDEF0123456789.pack", "zz112233445566778899aabbccddeeff.pack"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := NewPackID().String() + cacheSuffix
	if err := os.Symlink("README", filepath.Join(dir, link)); err != nil {
		t.Fatal(err)
	}
	c := newCache(t, dir, 0)
	c.Evict(1 << 40)
	if s := c.Stats(); s.Packs != 0 || s.Used != 0 {
		t.Errorf("%+v", s)
	}
	for _, name := range append(foreign, link) {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "mine" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// Reopening keeps the order of use as far as the files' times tell, and applies the new limit.
func TestCacheReopensInOrder(t *testing.T) {
	r := newRand(t)
	dir := t.TempDir()
	c, err := OpenPackCache(dir, 10*cacheBlock)
	if err != nil {
		t.Fatal(err)
	}
	var ids []PackID
	for i := range 3 {
		p := NewPackID()
		ids = append(ids, p)
		if err := c.Put(p, noise(r, cacheBlock)); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(c.path(p), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = newCache(t, dir, 2*cacheBlock)
	if c.has(ids[0], 0, 1) || !c.has(ids[1], 0, 1) || !c.has(ids[2], 0, 1) {
		t.Error("the least recently used pack was not the one evicted")
	}
}

// Somebody deletes or cuts the files of a running cache: reads miss, and filling works again.
func TestCacheFilesTakenAway(t *testing.T) {
	r := newRand(t)
	c := newCache(t, t.TempDir(), 100<<20)
	p, body := NewPackID(), noise(r, 2*cacheBlock)
	for name, harm := range map[string]func() error{
		"deleted": func() error { return os.Remove(c.path(p)) },
		"cut":     func() error { return os.Truncate(c.path(p), 10) },
	} {
		if err := c.Put(p, body); err != nil {
			t.Fatal(err)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if c.ReadAt(p, 100, make([]byte, len(body)-100)) {
			t.Errorf("%s: still read", name)
		}
		checkCache(t, c)
		if err := c.Put(p, body); err != nil {
			t.Fatal(err)
		}
		mustCached(t, c, p, body, 0, len(body))
	}
}

// On a full disk a fill leaves nothing behind, neither in the books nor on the disk.
func TestCacheWriteFails(t *testing.T) {
	r := newRand(t)
	c := newCache(t, t.TempDir(), 100<<20)
	room := 2*cacheBlock + cacheBlock/2
	c.write = func(f *os.File, b []byte, off int64) error {
		n := min(room, len(b))
		room -= n
		if _, err := f.WriteAt(b[:n], off); err != nil {
			return err
		}
		if n < len(b) {
			return &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
		}
		return nil
	}
	p, body := NewPackID(), noise(r, 4*cacheBlock)
	if err := c.Put(p, body); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("put on a full disk: %v", err)
	}
	if c.Used() != 2*cacheBlock {
		t.Errorf("%d bytes used, want two blocks", c.Used())
	}
	checkCache(t, c)
	mustCached(t, c, p, body, 0, 2*cacheBlock)
	q := NewPackID()
	if c.store(q, 0, body[:cacheBlock]) || c.has(q, 0, 1) {
		t.Error("a block was cached on a full disk")
	}
	checkCache(t, c)
	if s := c.Stats(); s.Faults != 1 || !errors.Is(s.Fault, syscall.ENOSPC) {
		t.Errorf("%+v", s)
	}
}

// The same on a real file system that is full, where mounting one is allowed.
func TestCacheDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3500k"); err != nil {
		if os.Getuid() == 0 && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	r := newRand(t)
	store := newMapStore()
	c := newCache(t, dir, 100<<20)
	all := pack(t, store, PackerOptions{Target: 2 << 20, Cache: c}, noise(r, 1900<<10), noise(r, 1900<<10), noise(r, 1900<<10))
	reader := newReader(t, store, ReaderOptions{Cache: c, Memory: -1})
	for range 2 {
		for _, p := range all {
			mustRead(t, reader, p)
		}
	}
	if s := c.Stats(); s.Faults == 0 || !errors.Is(s.Fault, syscall.ENOSPC) || s.Used == 0 || s.Used > 3500<<10 {
		t.Errorf("%+v", s)
	}
	checkCache(t, c)
	c.Evict(4 << 20)
	if !c.store(all[0].ref.Pack, 0, store.objects[all[0].ref.Pack.Key()]) {
		t.Error("nothing can be cached after eviction made room")
	}
}

func TestCacheClosed(t *testing.T) {
	c := newCache(t, t.TempDir(), 10<<20)
	p := NewPackID()
	c.keep(p, make([]byte, 10))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c.ReadAt(p, 0, make([]byte, 1)) || c.store(NewPackID(), 0, make([]byte, 10)) {
		t.Error("a closed cache works")
	}
	if _, err := OpenPackCache(filepath.Join(c.path(p), "x"), 1); err == nil {
		t.Error("a file was opened as a directory")
	}
}

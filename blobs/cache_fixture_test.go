package blobs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// checkCache proves that the cache's books are right: every count agrees with the others and with the files.
// Nothing may use the cache meanwhile.
func checkCache(t testing.TB, c *PackCache) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var used int64
	for id, e := range c.packs {
		var sum int64
		for _, n := range e.lens {
			sum += int64(n)
		}
		if e.condemned || e.gone || sum != e.bytes || e.id != id {
			t.Errorf("pack %s: condemned %v, gone %v, %d bytes counted, %d present", id, e.condemned, e.gone, e.bytes, sum)
		}
		used += sum
		var st unix.Stat_t
		if err := unix.Stat(c.path(id), &st); err != nil {
			t.Errorf("pack %s: %v", id, err)
		} else if disk := st.Blocks * 512; disk < sum || disk > sum+int64(len(e.lens)+1)*8192 {
			t.Errorf("pack %s: %d bytes on disk, %d counted", id, disk, sum)
		}
	}
	if used != c.used || used > c.limit || c.recent.Len() != len(c.packs) {
		t.Errorf("%d bytes present, %d counted, limit %d; %d packs, %d in order", used, c.used, c.limit, len(c.packs), c.recent.Len())
	}
	files, err := os.ReadDir(c.dir)
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if id, ours := cacheFileID(f); ours && c.packs[id] == nil {
			t.Errorf("file %s belongs to no pack", f.Name())
		}
	}
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

package fusefs

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMmapShared(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.WriteFile(s.path("f"), make([]byte, 1<<20), 0644))
		a, err := os.OpenFile(s.path("f"), os.O_RDWR, 0)
		must(t, err)
		b, err := os.OpenFile(s.path("f"), os.O_RDWR, 0)
		must(t, err)
		defer b.Close()
		m, err := unix.Mmap(int(a.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		must(t, a.Close()) // the mapping keeps the file
		copy(m[5000:], "by memory")
		got := make([]byte, 9)
		if _, err := b.ReadAt(got, 5000); err != nil || string(got) != "by memory" {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := b.WriteAt([]byte("by write "), 700000); err != nil || string(m[700000:700009]) != "by write " {
			t.Errorf("mapping shows %q, %v", m[700000:700009], err)
		}
		must(t, unix.Msync(m, unix.MS_SYNC))
		must(t, unix.Munmap(m))
		must(t, b.Close())
		s.noneOpen()
		got, err = os.ReadFile(s.path("f"))
		must(t, err)
		if string(got[5000:5009]) != "by memory" || string(got[700000:700009]) != "by write " {
			t.Error("content lost")
		}
	})
}

// TestMmapTimes: a change through a mapping moves mtime, at the latest when the mapping is gone and the file closed.
func TestMmapTimes(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.WriteFile(s.path("f"), make([]byte, 1<<20), 0644))
		s.noneOpen()
		old := time.Unix(1000, 5)
		must(t, os.Chtimes(s.path("f"), old, old))
		f, err := os.OpenFile(s.path("f"), os.O_RDWR, 0)
		must(t, err)
		m, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		lstat(t, s.path("f")) // the kernel has the attributes of before the change
		copy(m[5000:], "by memory")
		must(t, unix.Msync(m, unix.MS_SYNC))
		must(t, unix.Munmap(m))
		must(t, f.Close())
		s.noneOpen()
		if st := lstat(t, s.path("f")); st.Mtim.Nano() == old.UnixNano() {
			t.Errorf("mtime still %v", st.Mtim)
		}
	})
}

package fusefs

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// wantRequests runs fn and checks which requests it caused; RELEASE and FORGET, which nobody waits for, are left out.
func (s *served) wantRequests(what string, want map[string]uint64, fn func()) {
	s.t.Helper()
	got := s.requests(fn)
	delete(got, "RELEASE")
	delete(got, "FORGET")
	if !maps.Equal(got, want) {
		s.t.Errorf("%s: requests %v, want %v", what, got, want)
	}
}

type counts = map[string]uint64

// TestRequestCounts holds the number of round trips of common work: each costs some 20 us.
func TestRequestCounts(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		// The kernel asks for the attributes of a directory again when a path goes through it after a change in it, to
		// check permissions. In write-back mode it sends the times it kept, and asks for the blocks of a file after a
		// close: more is extra then.
		writeback := !s.stats().Passthrough
		more := func(c, extra counts) counts {
			if writeback {
				for name, n := range extra {
					c[name] += n
				}
			}
			return c
		}
		must(t, os.WriteFile(s.path("warm"), []byte("x"), 0644)) // OPENDIR and the like are asked once per mount
		_, err := os.ReadDir(s.dir)
		must(t, err)
		fd, err := unix.Open(s.path("warm"), unix.O_RDWR, 0)
		must(t, err)
		must(t, unix.Close(fd))

		s.wantRequests("create and close", counts{"LOOKUP": 1, "CREATE": 1}, func() {
			fd, err := unix.Open(s.path("f"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0644)
			must(t, err)
			must(t, unix.Close(fd))
		})
		s.wantRequests("stat, twice", more(counts{"GETATTR": 1}, counts{"GETATTR": 1}), func() { lstat(t, s.path("f")); lstat(t, s.path("f")) })
		s.wantRequests("absent, twice", counts{"LOOKUP": 1}, func() {
			for range 2 {
				if err := unix.Access(s.path("absent"), 0); err != syscall.ENOENT {
					t.Error(err)
				}
			}
		})
		s.wantRequests("open and close", counts{"OPEN": 1}, func() {
			fd, err := unix.Open(s.path("f"), unix.O_RDONLY, 0)
			must(t, err)
			must(t, unix.Close(fd))
		})
		s.wantRequests("mkdir", counts{"LOOKUP": 1, "MKDIR": 1}, func() { must(t, unix.Mkdir(s.path("d"), 0755)) })
		s.wantRequests("rename", more(counts{"GETATTR": 1, "LOOKUP": 1, "RENAME2": 1}, counts{"SETATTR": 1}), func() {
			must(t, unix.Renameat2(unix.AT_FDCWD, s.path("f"), unix.AT_FDCWD, s.path("d/g"), unix.RENAME_NOREPLACE))
		})
		s.wantRequests("unlink", more(counts{"GETATTR": 2, "UNLINK": 1}, counts{"SETATTR": 1}), func() { must(t, unix.Unlink(s.path("d/g"))) })
		s.wantRequests("rmdir", counts{"RMDIR": 1}, func() { must(t, unix.Rmdir(s.path("d"))) })
		s.wantRequests("symlink", counts{"GETATTR": 1, "LOOKUP": 1, "SYMLINK": 1}, func() { must(t, unix.Symlink("target", s.path("l"))) })
		s.wantRequests("readlink, twice", counts{"GETATTR": 1, "READLINK": 1}, func() {
			for range 2 {
				if target, err := os.Readlink(s.path("l")); target != "target" {
					t.Error(target, err)
				}
			}
		})
		s.wantRequests("statfs", counts{"STATFS": 1}, func() { must(t, unix.Statfs(s.dir, &unix.Statfs_t{})) })
		s.wantRequests("O_TRUNC", more(counts{"GETXATTR": 1, "OPEN": 1}, counts{"SETATTR": 1}), func() {
			fd, err := unix.Open(s.path("warm"), unix.O_WRONLY|unix.O_TRUNC, 0)
			must(t, err)
			must(t, unix.Close(fd))
		})
	})
}

// TestNoPermissions: a mount of root alone may do without the check, and the GETATTRs it costs.
func TestNoPermissions(t *testing.T) {
	s := start(t, childConfig{Core: "mem", NoPermissions: true})
	must(t, os.WriteFile(s.path("warm"), []byte("x"), 0644))
	s.wantRequests("unlink, mkdir, stat", counts{"UNLINK": 1, "LOOKUP": 1, "MKDIR": 1}, func() {
		must(t, unix.Unlink(s.path("warm")))
		must(t, unix.Mkdir(s.path("d"), 0755))
		lstat(t, s.path("d"))
	})
	if err := asNobody(t, `ls "$0"`, s.dir); err == nil {
		t.Error("another user gets in")
	}
	if _, err := tryStart(t, childConfig{Core: "mem", NoPermissions: true, AllowOther: true}); err == nil || !strings.Contains(err.Error(), "NoPermissions") {
		t.Errorf("with AllowOther: %v", err)
	}
}

// TestReadCounts: reading costs READs in cached mode only, and only the first time.
func TestReadCounts(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.WriteFile(s.path("f"), make([]byte, 4<<20), 0644))
		s.noneOpen()
		read := func() {
			fd, err := unix.Open(s.path("f"), unix.O_RDONLY, 0)
			must(t, err)
			buf := make([]byte, 1<<20)
			total := 0
			for {
				n, err := unix.Read(fd, buf)
				must(t, err)
				if total += n; n == 0 {
					break
				}
			}
			if total != 4<<20 {
				t.Errorf("read %d bytes", total)
			}
			must(t, unix.Close(fd))
		}
		first := s.requests(read)
		second := s.requests(read)
		t.Logf("first %v, second %v", first, second)
		if second["READ"] != 0 {
			t.Errorf("second reading: %d READs", second["READ"])
		}
		if s.stats().PassthroughOpens > 0 && first["READ"] != 0 {
			t.Errorf("passthrough: %d READs", first["READ"])
		}
	})
}

// TestListing: a listing is cached, follows our own changes at once, and those made behind the kernel's back when it is told.
func TestListing(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		names := func(dir string) []string {
			t.Helper()
			e, err := os.ReadDir(dir)
			must(t, err)
			var all []string
			for _, e := range e {
				all = append(all, e.Name())
			}
			return all
		}
		check := func(what string, want ...string) {
			t.Helper()
			for range 2 {
				if got := names(s.dir); !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
		}
		check("empty")
		must(t, os.WriteFile(s.path("b"), nil, 0644))
		check("created", "b")
		must(t, os.Mkdir(s.path("a"), 0755))
		check("mkdir", "a", "b")
		must(t, os.Rename(s.path("b"), s.path("a/b")))
		check("renamed away", "a")
		must(t, os.Link(s.path("a/b"), s.path("c")))
		must(t, os.Symlink("c", s.path("d")))
		check("linked", "a", "c", "d")
		must(t, os.Remove(s.path("c")))
		check("removed", "a", "d")
		var ok string
		s.ask(&ok, "write e hidden change")
		check("written behind", "a", "d", "e")
		s.ask(&ok, "rename e f")
		check("renamed behind", "a", "d", "f")
		wantFile(t, s.path("f"), "hidden change")
		if got := names(s.path("a")); !slices.Equal(got, []string{"b"}) {
			t.Errorf("a: %v", got)
		}
		check("still", "a", "d", "f")
		if got := s.requests(func() { check("cached", "a", "d", "f") }); got["READDIR"]+got["READDIRPLUS"]+got["OPENDIR"] != 0 {
			t.Errorf("cached listing: requests %v", got)
		}
	})
}

// TestBehind: content, attributes, absent names and replaced inodes changed behind the kernel's back show at once.
func TestBehind(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		var ok string
		_, err := os.Stat(s.path("f"))
		wantErr(t, "stat", err, syscall.ENOENT)
		for i := range 20 {
			text := strings.Repeat(fmt.Sprintf("version %d ", i), 1+i%5)
			s.ask(&ok, "write f %s", text)
			wantFile(t, s.path("f"), text)
			if st := lstat(t, s.path("f")); st.Size != int64(len(text)) {
				t.Errorf("size %d, want %d", st.Size, len(text))
			}
		}
		s.ask(&ok, "write g other inode")
		s.ask(&ok, "rename g f")
		wantFile(t, s.path("f"), "other inode")
		_, err = os.Stat(s.path("g"))
		wantErr(t, "stat", err, syscall.ENOENT)
		must(t, os.WriteFile(s.path("f"), []byte("through the mount"), 0644))
		s.ask(&ok, "write f short")
		wantFile(t, s.path("f"), "short")
	})
}

// TestModeChange: pages cached while an inode was open in cached mode are gone after it was written in passthrough, and the
// other way round.
func TestModeChange(t *testing.T) {
	if why := passthroughPossible(); why != nil {
		t.Skip(why)
	}
	s := start(t, childConfig{Core: "mem", Passthrough: PassthroughOn})
	var ok string
	for i := range 20 {
		s.ask(&ok, "refuse %s", map[bool]string{true: "on", false: "off"}[i%2 == 0])
		text := strings.Repeat(fmt.Sprintf("round %d,", i), 1000)
		f, err := os.OpenFile(s.path("f"), os.O_RDWR|os.O_CREATE, 0644) // no O_TRUNC: that would drop pages by itself
		must(t, err)
		_, err = f.WriteAt([]byte(text), 0)
		must(t, err)
		must(t, f.Truncate(int64(len(text))))
		must(t, f.Close())
		s.noneOpen()
		s.ask(&ok, "refuse %s", map[bool]string{true: "on", false: "off"}[i%3 == 0])
		wantFile(t, s.path("f"), text)
		s.noneOpen()
	}
	st := s.stats()
	if st.PassthroughOpens < 5 || st.CachedOpens < 5 {
		t.Errorf("modes did not alternate: %+v", st)
	}
}

// TestParallelOpens opens, writes and closes one inode from many threads while the core changes its mind about backing
// files. The kernel answers EIO where we break its rules.
func TestParallelOpens(t *testing.T) {
	if why := passthroughPossible(); why != nil {
		t.Skip(why)
	}
	s := start(t, childConfig{Core: "mem", Passthrough: PassthroughOn})
	must(t, os.WriteFile(s.path("f"), []byte("0123456789"), 0644))
	var ok string
	for round := range 40 {
		s.ask(&ok, "refuse %s", []string{"on", "off"}[round%2])
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() { openAndClose(t, s.path("f"), w, 30) })
		}
		s.ask(&ok, "refuse %s", []string{"off", "on"}[round/2%2]) // in the middle of it
		wg.Wait()
		s.noneOpen()
	}
	st := s.stats()
	t.Logf("%d passthrough, %d cached opens", st.PassthroughOpens, st.CachedOpens)
	if st.PassthroughOpens < 50 || st.CachedOpens < 50 {
		t.Errorf("modes did not alternate: %+v", st)
	}
}

func openAndClose(t *testing.T, path string, from, times int) {
	for i := range times {
		flags := []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREATE}[(i+from)%4]
		f, err := os.OpenFile(path, flags, 0644)
		if err != nil {
			t.Error(err)
			return
		}
		if flags&os.O_WRONLY == 0 {
			if _, err := f.ReadAt(make([]byte, 10), 0); err != nil && err != io.EOF {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReferences: every reference given is given back, and no more: when all is removed the core holds nothing.
func TestReferences(t *testing.T) {
	for _, m := range modes(t) {
		t.Run(m.name, func(t *testing.T) {
			m.cfg.Core = "mem"
			s := start(t, m.cfg)
			for i := range 50 {
				must(t, os.WriteFile(s.path(fmt.Sprint("f", i)), []byte("x"), 0644))
				must(t, os.Link(s.path(fmt.Sprint("f", i)), s.path(fmt.Sprint("l", i))))
				must(t, os.Symlink("x", s.path(fmt.Sprint("s", i))))
				must(t, os.MkdirAll(s.path(fmt.Sprint("d", i), "sub"), 0755))
				must(t, unix.Mkfifo(s.path(fmt.Sprint("d", i), "fifo"), 0600))
				fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR, 0600)
				must(t, err)
				must(t, unix.Close(fd))
				var ok string
				s.ask(&ok, "write b%d text", i) // the kernel learns of these by READDIRPLUS and LOOKUP
			}
			for range 3 {
				entries, err := os.ReadDir(s.dir)
				must(t, err)
				for _, e := range entries {
					_, err := e.Info()
					must(t, err)
				}
			}
			entries, err := os.ReadDir(s.dir)
			must(t, err)
			for _, e := range entries {
				must(t, os.RemoveAll(s.path(e.Name())))
			}
			var left [2]uint64
			s.within("inodes and references", func() bool {
				s.ask(&left, "counts")
				return left == [2]uint64{}
			})
			if left != [2]uint64{} {
				t.Errorf("%d inodes, %d references left", left[0], left[1])
			}
		})
	}
}

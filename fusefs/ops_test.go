package fusefs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s: %.80q (%d bytes), %v; want %.80q (%d bytes)", path, got, len(got), err, want, len(want))
	}
}

func lstat(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	must(t, unix.Lstat(path, &st))
	return st
}

// TestContent writes, overwrites, truncates and reads back at random against a buffer, through several descriptors.
func TestContent(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		fds := make([]*os.File, 3)
		for i := range fds {
			f, err := os.OpenFile(s.path("f"), os.O_RDWR|os.O_CREATE, 0644)
			must(t, err)
			defer f.Close()
			fds[i] = f
		}
		var want []byte
		for i := range 400 {
			f := fds[rng.IntN(len(fds))]
			switch off := rng.IntN(1 << 21); rng.IntN(8) {
			case 0:
				must(t, f.Truncate(int64(off)))
				want = append(want[:min(off, len(want))], make([]byte, max(0, off-len(want)))...)
			case 1:
				p := make([]byte, rng.IntN(3<<20))
				want = write(t, f, want, p, off, byte(i))
			case 2, 3, 4:
				p := make([]byte, rng.IntN(10000))
				want = write(t, f, want, p, off, byte(i))
			default:
				got := make([]byte, rng.IntN(1<<20))
				n, _ := f.ReadAt(got, int64(off))
				if part := want[min(off, len(want)):min(off+len(got), len(want))]; !bytes.Equal(got[:n], part) {
					t.Fatalf("step %d: %d bytes at %d differ (got %d bytes, want %d)", i, len(got), off, n, len(part))
				}
			}
			if st, err := f.Stat(); err != nil || st.Size() != int64(len(want)) {
				t.Fatalf("step %d: size %v, %v; want %d", i, st.Size(), err, len(want))
			}
		}
		must(t, fds[0].Sync())
		wantFile(t, s.path("f"), string(want))
	})
}

func write(t *testing.T, f *os.File, want, p []byte, off int, b byte) []byte {
	t.Helper()
	for i := range p {
		p[i] = b + byte(i>>8)
	}
	if _, err := f.WriteAt(p, int64(off)); err != nil {
		t.Fatal(err)
	}
	if end := off + len(p); end > len(want) && len(p) > 0 {
		want = append(want, make([]byte, end-len(want))...)
	}
	copy(want[min(off, len(want)):], p)
	return want
}

func TestNames(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		long := strings.Repeat("é", 127) + "x" // 255 bytes
		must(t, os.WriteFile(s.path(long), []byte("long"), 0644))
		wantFile(t, s.path(long), "long")
		must(t, os.Rename(s.path(long), s.path("short")))
		must(t, os.Rename(s.path("short"), s.path(long)))
		tooLong := long + "y"
		_, err := os.Stat(s.path(tooLong))
		wantErr(t, "stat", err, syscall.ENAMETOOLONG)
		wantErr(t, "create", os.WriteFile(s.path(tooLong), nil, 0644), syscall.ENAMETOOLONG)
		wantErr(t, "mkdir", os.Mkdir(s.path(tooLong), 0755), syscall.ENAMETOOLONG)
		wantErr(t, "symlink", os.Symlink("x", s.path(tooLong)), syscall.ENAMETOOLONG)
		wantErr(t, "rename", os.Rename(s.path(long), s.path(tooLong)), syscall.ENAMETOOLONG)
		wantErr(t, "link", os.Link(s.path(long), s.path(tooLong)), syscall.ENAMETOOLONG)
		for _, name := range []string{"new\nline", "back\\slash", " ", "\xff\xfe", "日本"} {
			must(t, os.WriteFile(s.path(name), []byte(name), 0644))
			wantFile(t, s.path(name), name)
		}
		deepPath(t, s)
	})
}

// deepPath makes a path longer than PATH_MAX, step by step.
func deepPath(t *testing.T, s *served) {
	dir, err := unix.Open(s.dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	must(t, err)
	name := strings.Repeat("d", 200)
	for range 30 {
		must(t, unix.Mkdirat(dir, name, 0755))
		next, err := unix.Openat(dir, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		must(t, err)
		must(t, unix.Close(dir))
		dir = next
	}
	fd, err := unix.Openat(dir, "bottom", unix.O_CREAT|unix.O_RDWR, 0644)
	must(t, err)
	_, err = unix.Write(fd, []byte("deep"))
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Fstatat(dir, "bottom", &st, 0))
	if st.Size != 4 {
		t.Errorf("size %d, want 4", st.Size)
	}
	must(t, errors.Join(unix.Close(fd), unix.Close(dir)))
	must(t, os.RemoveAll(s.path(name)))
}

func TestAttributes(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		p := s.path("f")
		must(t, os.WriteFile(p, []byte("12345"), 0640))
		st := lstat(t, p)
		if st.Mode != unix.S_IFREG|0640 || st.Nlink != 1 || st.Size != 5 {
			t.Errorf("mode %o nlink %d size %d", st.Mode, st.Nlink, st.Size)
		}
		must(t, os.Chmod(p, 0751))
		must(t, os.Chown(p, 12, 34))
		if st = lstat(t, p); st.Mode&07777 != 0751 || st.Uid != 12 || st.Gid != 34 {
			t.Errorf("mode %o owner %d:%d, want 751 12:34", st.Mode, st.Uid, st.Gid)
		}
		at, mt := unix.Timespec{Sec: 12, Nsec: 123456789}, unix.Timespec{Sec: -1000, Nsec: 999999999}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{at, mt}, 0))
		if st = lstat(t, p); st.Atim != at || st.Mtim != mt {
			t.Errorf("times %v %v, want %v %v", st.Atim, st.Mtim, at, mt)
		}
		at2 := unix.Timespec{Sec: 77, Nsec: 7}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{at2, {Nsec: unix.UTIME_OMIT}}, 0))
		if st = lstat(t, p); st.Atim != at2 || st.Mtim != mt {
			t.Errorf("times %v %v, want %v %v", st.Atim, st.Mtim, at2, mt)
		}
		before := time.Now().Add(-time.Second).UnixNano()
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}, 0))
		if st = lstat(t, p); st.Mtim.Nano() < before || st.Atim != at2 {
			t.Errorf("times %v %v", st.Atim, st.Mtim)
		}
		var sx unix.Statx_t
		must(t, unix.Statx(unix.AT_FDCWD, p, 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &sx))
		if sx.Mask&unix.STATX_BTIME == 0 || sx.Btime.Sec < before/1e9-60 {
			t.Errorf("statx mask %#x, birth %v", sx.Mask, sx.Btime)
		}
	})
}

// TestWriteTimes: a write moves mtime, also one by mmap in passthrough, and a time set after it stays.
func TestWriteTimes(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		f, err := os.Create(s.path("f"))
		must(t, err)
		defer f.Close()
		old := time.Unix(1000, 5)
		must(t, os.Chtimes(s.path("f"), old, old))
		_, err = f.WriteString("x")
		must(t, err)
		if st := lstat(t, s.path("f")); st.Mtim.Nano() == old.UnixNano() || st.Size != 1 {
			t.Errorf("after write: mtime %v size %d", st.Mtim, st.Size)
		}
		_, err = f.WriteString("y")
		must(t, err)
		must(t, os.Chtimes(s.path("f"), old, old))
		must(t, f.Close())
		s.noneOpen()
		if st := lstat(t, s.path("f")); st.Mtim.Nano() != old.UnixNano() || st.Size != 2 {
			t.Errorf("after close: mtime %v, want %v; size %d", st.Mtim, old, st.Size)
		}
	})
}

func TestMakeAndRemove(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, unix.Mkfifo(s.path("fifo"), 0600))
		if st := lstat(t, s.path("fifo")); st.Mode != unix.S_IFIFO|0600 {
			t.Errorf("fifo: mode %o", st.Mode)
		}
		dev := unix.Mkdev(259, 70000)
		must(t, unix.Mknod(s.path("dev"), unix.S_IFBLK|0600, int(dev)))
		if st := lstat(t, s.path("dev")); st.Rdev != dev || st.Mode != unix.S_IFBLK|0600 {
			t.Errorf("device %#x mode %o, want %#x", st.Rdev, st.Mode, dev)
		}
		var sx unix.Statx_t
		must(t, unix.Statx(unix.AT_FDCWD, s.path("dev"), 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &sx))
		if sx.Rdev_major != 259 || sx.Rdev_minor != 70000 {
			t.Errorf("statx device %d:%d", sx.Rdev_major, sx.Rdev_minor)
		}
		must(t, os.Mkdir(s.path("d"), 0755))
		must(t, os.Chown(s.path("d"), 0, 55))
		must(t, unix.Chmod(s.path("d"), 02775))
		must(t, os.Mkdir(s.path("d/sub"), 0755))
		must(t, os.WriteFile(s.path("d/f"), nil, 0644))
		if st := lstat(t, s.path("d/sub")); st.Gid != 55 || st.Mode&unix.S_ISGID == 0 {
			t.Errorf("directory in a set-group-ID directory: group %d mode %o", st.Gid, st.Mode)
		}
		if st := lstat(t, s.path("d/f")); st.Gid != 55 {
			t.Errorf("file in a set-group-ID directory: group %d", st.Gid)
		}
		wantErr(t, "rmdir", unix.Rmdir(s.path("d")), syscall.ENOTEMPTY)
		wantErr(t, "rmdir of a file", unix.Rmdir(s.path("d/f")), syscall.ENOTDIR)
		wantErr(t, "unlink of a directory", unix.Unlink(s.path("d/sub")), syscall.EISDIR)
		wantErr(t, "mkdir", unix.Mkdir(s.path("d/f"), 0755), syscall.EEXIST)
		must(t, os.Symlink("../fifo", s.path("d/link")))
		if target, err := os.Readlink(s.path("d/link")); err != nil || target != "../fifo" {
			t.Errorf("readlink: %q, %v", target, err)
		}
		must(t, os.RemoveAll(s.path("d")))
		_, err := os.Lstat(s.path("d"))
		wantErr(t, "lstat", err, fs.ErrNotExist)
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, openDir(t, s.dir), 0x5401, 0)
		wantErr(t, "ioctl", errno, syscall.ENOTTY)
	})
}

func openDir(t *testing.T, dir string) uintptr {
	t.Helper()
	d, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d.Fd()
}

func TestRename(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.WriteFile(s.path("a"), []byte("A"), 0644))
		must(t, os.WriteFile(s.path("b"), []byte("B"), 0644))
		must(t, os.Mkdir(s.path("d"), 0755))
		rename2 := func(a, b string, flags uint) error {
			return unix.Renameat2(unix.AT_FDCWD, s.path(a), unix.AT_FDCWD, s.path(b), flags)
		}
		wantErr(t, "NOREPLACE", rename2("a", "b", unix.RENAME_NOREPLACE), syscall.EEXIST)
		wantErr(t, "WHITEOUT", rename2("a", "b", unix.RENAME_WHITEOUT), syscall.EINVAL)
		wantErr(t, "EXCHANGE", rename2("a", "none", unix.RENAME_EXCHANGE), syscall.ENOENT)
		must(t, rename2("a", "c", unix.RENAME_NOREPLACE))
		must(t, rename2("c", "b", unix.RENAME_EXCHANGE))
		wantFile(t, s.path("c"), "B")
		wantFile(t, s.path("b"), "A")
		must(t, rename2("b", "d", unix.RENAME_EXCHANGE)) // a file and a directory
		wantFile(t, s.path("d"), "A")
		must(t, os.Rename(s.path("d"), s.path("b/a")))
		wantFile(t, s.path("b/a"), "A")
		must(t, os.Rename(s.path("c"), s.path("b/a")))
		wantFile(t, s.path("b/a"), "B")
		entries, err := os.ReadDir(s.dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "b" {
			t.Errorf("root: %v, %v", entries, err)
		}
	})
}

func TestXattrs(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		p := s.path("f")
		must(t, os.WriteFile(p, nil, 0644))
		must(t, unix.Setxattr(p, "user.a", []byte("value"), unix.XATTR_CREATE))
		wantErr(t, "create", unix.Setxattr(p, "user.a", nil, unix.XATTR_CREATE), syscall.EEXIST)
		wantErr(t, "replace", unix.Setxattr(p, "user.none", nil, unix.XATTR_REPLACE), syscall.ENODATA)
		big := bytes.Repeat([]byte("x"), 60000)
		must(t, unix.Setxattr(p, "user.big", big, 0))
		must(t, unix.Setxattr(p, "trusted.t", nil, 0))
		got := make([]byte, 65536)
		if n, err := unix.Getxattr(p, "user.big", got); err != nil || !bytes.Equal(got[:n], big) {
			t.Errorf("getxattr: %d bytes, %v", n, err)
		}
		if n, err := unix.Getxattr(p, "user.big", nil); err != nil || n != len(big) {
			t.Errorf("size: %d, %v", n, err)
		}
		_, err := unix.Getxattr(p, "user.big", got[:10])
		wantErr(t, "short buffer", err, syscall.ERANGE)
		n, err := unix.Listxattr(p, got)
		if want := "trusted.t\x00user.a\x00user.big\x00"; err != nil || string(got[:n]) != want {
			t.Errorf("listxattr: %q, %v; want %q", got[:n], err, want)
		}
		_, err = unix.Listxattr(p, got[:12])
		wantErr(t, "short list", err, syscall.ERANGE)
		must(t, unix.Removexattr(p, "user.a"))
		_, err = unix.Getxattr(p, "user.a", got)
		wantErr(t, "removed", err, syscall.ENODATA)
	})
}

// TestUnlinkedOpen: everything that goes by descriptor goes on working on a file without a name.
func TestUnlinkedOpen(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		for _, how := range []string{"unlink", "rename over"} {
			f, err := os.Create(s.path("f"))
			must(t, err)
			if how == "unlink" {
				must(t, os.Remove(s.path("f")))
			} else {
				must(t, os.WriteFile(s.path("other"), []byte("other"), 0644))
				must(t, os.Rename(s.path("other"), s.path("f")))
			}
			_, err = f.WriteString("still here")
			must(t, err)
			must(t, f.Chmod(0600))
			must(t, f.Chown(3, 4))
			at := unix.Timespec{Sec: 5, Nsec: 6}
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []unix.Timespec{at, at}, 0))
			must(t, unix.Fsetxattr(int(f.Fd()), "user.x", []byte("1"), 0))
			must(t, f.Sync())
			var st unix.Stat_t
			must(t, unix.Fstat(int(f.Fd()), &st))
			if st.Nlink != 0 || st.Size != 10 || st.Mode&07777 != 0600 || st.Uid != 3 || st.Mtim != at {
				t.Errorf("%s: nlink %d size %d mode %o uid %d mtime %v", how, st.Nlink, st.Size, st.Mode, st.Uid, st.Mtim)
			}
			wantFile(t, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "still here")
			again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR|os.O_APPEND, 0)
			must(t, err)
			_, err = again.WriteString("!")
			must(t, err)
			must(t, f.Close())
			must(t, again.Truncate(5))
			got := make([]byte, 20)
			if n, _ := again.ReadAt(got, 0); string(got[:n]) != "still" {
				t.Errorf("%s: read %q", how, got[:n])
			}
			must(t, again.Close())
		}
	})
}

func TestTmpfileLink(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR, 0640)
		must(t, err)
		f := os.NewFile(uintptr(fd), "tmpfile")
		defer f.Close()
		_, err = f.WriteString("content")
		must(t, err)
		if st, err := f.Stat(); err != nil || st.Sys().(*syscall.Stat_t).Nlink != 0 {
			t.Errorf("%+v, %v", st, err)
		}
		if e, err := os.ReadDir(s.dir); err != nil || len(e) != 0 {
			t.Errorf("directory shows %v, %v", e, err)
		}
		must(t, unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, s.path("named"), unix.AT_SYMLINK_FOLLOW))
		wantFile(t, s.path("named"), "content")
		if st := lstat(t, s.path("named")); st.Nlink != 1 || st.Mode != unix.S_IFREG|0640 {
			t.Errorf("nlink %d mode %o", st.Nlink, st.Mode)
		}
		excl, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL, 0640)
		must(t, err)
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", excl), unix.AT_FDCWD, s.path("no"), unix.AT_SYMLINK_FOLLOW)
		wantErr(t, "link of an O_EXCL one", err, syscall.ENOENT)
		must(t, unix.Close(excl))
	})
}

func TestSparse(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		f, err := os.Create(s.path("f"))
		must(t, err)
		defer f.Close()
		data := bytes.Repeat([]byte("d"), 64<<10)
		_, err = f.WriteAt(data, 1<<20)
		must(t, err)
		must(t, f.Truncate(8<<20))
		must(t, f.Sync())
		seek := func(off int64, whence int, want int64) {
			t.Helper()
			if got, err := unix.Seek(int(f.Fd()), off, whence); err != nil || got != want {
				t.Errorf("seek(%d, %d) = %d, %v; want %d", off, whence, got, err, want)
			}
		}
		seek(0, unix.SEEK_DATA, 1<<20)
		seek(1<<20, unix.SEEK_HOLE, 1<<20+64<<10)
		seek(0, unix.SEEK_HOLE, 0)
		_, err = unix.Seek(int(f.Fd()), 2<<20, unix.SEEK_DATA)
		wantErr(t, "no more data", err, syscall.ENXIO)
		dup, err := unix.Dup(int(f.Fd()))
		must(t, err)
		must(t, unix.Close(dup)) // in write-back mode the kernel asks for the number of blocks after a close(2) only
		if st := lstat(t, s.path("f")); st.Blocks*512 < 64<<10 || st.Blocks*512 > 256<<10 {
			t.Errorf("%d blocks for 64 KiB of data", st.Blocks)
		}
		must(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<20, 32<<10))
		got := make([]byte, 64<<10)
		_, err = f.ReadAt(got, 1<<20)
		must(t, err)
		if want := append(make([]byte, 32<<10), data[:32<<10]...); !bytes.Equal(got, want) {
			t.Error("punched hole reads wrong")
		}
		seek(0, unix.SEEK_DATA, 1<<20+32<<10)
		must(t, unix.Fallocate(int(f.Fd()), 0, 8<<20, 1<<20))
		if st := lstat(t, s.path("f")); st.Size != 9<<20 {
			t.Errorf("size %d after fallocate", st.Size)
		}
		wantErr(t, "collapse", unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096), syscall.EOPNOTSUPP)
	})
}

func TestCopyFileRange(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		want := make([]byte, 3<<20)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		must(t, os.WriteFile(s.path("a"), want, 0644))
		src, err := os.Open(s.path("a"))
		must(t, err)
		defer src.Close()
		dst, err := os.Create(s.path("b"))
		must(t, err)
		defer dst.Close()
		var from, to int64
		for from < int64(len(want)) {
			n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, len(want), 0)
			if err != nil || n == 0 {
				t.Fatalf("copied %d at %d: %v", n, from, err)
			}
		}
		wantFile(t, s.path("b"), string(want))
		if s.stats().Requests["COPY_FILE_RANGE"] == 0 {
			t.Error("the copy did not reach us")
		}
	})
}

// TestSeekdir lists a directory in small steps while its entries are removed and added: each entry that stays is seen once.
func TestSeekdir(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		const n = 3000
		must(t, os.Mkdir(s.path("d"), 0755))
		for i := range n {
			must(t, unix.Mknod(s.path("d", fmt.Sprintf("f%05d", i)), unix.S_IFREG|0644, 0))
		}
		d, err := os.Open(s.path("d"))
		must(t, err)
		defer d.Close()
		seen := map[string]int{}
		for step := 0; ; step++ {
			names, err := d.Readdirnames(100)
			for _, name := range names {
				seen[name]++
			}
			if err != nil {
				break
			}
			for _, name := range names { // as rm -r does
				if !strings.HasSuffix(name, "7") {
					must(t, os.Remove(s.path("d", name)))
				}
			}
			if step < 40 {
				must(t, os.WriteFile(s.path("d", fmt.Sprintf("new%d", step)), nil, 0644))
			}
		}
		for i := range n {
			if name := fmt.Sprintf("f%05d", i); seen[name] != 1 {
				t.Fatalf("%s seen %d times", name, seen[name])
			}
		}
		left, err := os.ReadDir(s.path("d"))
		must(t, err)
		left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "new") })
		if len(left) != n/10 {
			t.Errorf("%d entries left, want %d", len(left), n/10)
		}
	})
}

func TestTextBusy(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		sleep, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		must(t, os.WriteFile(s.path("sleep"), sleep, 0755))
		cmd := command(t, s.path("sleep"), "30")
		_, err = os.OpenFile(s.path("sleep"), os.O_WRONLY, 0)
		wantErr(t, "write to a running program", err, syscall.ETXTBSY)
		must(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Error("killed and no error")
		}
	})
}

func TestMountTable(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		table, err := os.ReadFile("/proc/self/mounts")
		must(t, err)
		at := slices.IndexFunc(strings.Split(string(table), "\n"), func(l string) bool { return strings.Contains(l, " "+s.dir+" ") })
		line := strings.Split(string(table), "\n")[max(at, 0)]
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "fuse.wsfs" || f[0] != `test\043ws` {
			t.Errorf("mount table: %q", line)
		}
		for _, want := range []string{"default_permissions", "allow_other", "max_read=1048576"} {
			if !strings.Contains(line, want) {
				t.Errorf("mount table: %q lacks %s", line, want)
			}
		}
		var st unix.Statfs_t
		must(t, unix.Statfs(s.dir, &st))
		if st.Namelen != 255 || st.Blocks == 0 || st.Bfree > st.Blocks || st.Bavail > st.Bfree {
			t.Errorf("statfs %+v", st)
		}
		dev, err := deviceOf(s.dir)
		must(t, err)
		if kb, err := os.ReadFile(filepath.Join("/sys/class/bdi", dev, "read_ahead_kb")); err != nil || strings.TrimSpace(string(kb)) != fmt.Sprint(readAhead) {
			t.Errorf("read-ahead %q, %v", kb, err)
		}
	})
}

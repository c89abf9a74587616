package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

func lockThread() { runtime.LockOSThread() }

func TestPredictor(t *testing.T) {
	var p predictor
	if !p.wants(7) {
		t.Error("a process first seen gets a slot")
	}
	p.saw(7, 2000)
	if p.wants(7) {
		t.Error("a process that made a small file gets none")
	}
	p.saw(7, 64<<20)
	if !p.wants(7) {
		t.Error("one large file is enough to try again")
	}
	n := 0
	for ; p.wants(7); n++ {
		p.saw(7, 0)
		if n > 20 {
			t.Fatal("small files never outweigh a large one")
		}
	}
	if n > 5 {
		t.Errorf("%d small files to forget a large one", n)
	}
	for range 1000 { // converges to what it sees, both ways
		p.saw(7, 128<<10+64)
	}
	if !p.wants(7) {
		t.Error("always just over the limit, and no slot")
	}
	for pid := range uint32(1 << 20) { // bounded: other processes push it out
		p.saw(pid+100, 1)
	}
	if !p.wants(7) {
		t.Error("a process that was pushed out is first seen again")
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err   error
		want  syscall.Errno
		known bool
	}{
		{syscall.ENOTEMPTY, syscall.ENOTEMPTY, true},
		{&fs.PathError{Op: "x", Path: "y", Err: syscall.EXDEV}, syscall.EXDEV, true},
		{fmt.Errorf("read: %w", syscall.ENOSPC), syscall.ENOSPC, true},
		{context.Canceled, syscall.EINTR, true},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), syscall.ETIMEDOUT, true},
		{fs.ErrNotExist, syscall.ENOENT, true},
		{errors.New("chunk is damaged"), syscall.EIO, false},
	} {
		if got, known := errnoOf(c.err); got != c.want || known != c.known {
			t.Errorf("%v: %v %v, want %v %v", c.err, got, known, c.want, c.known)
		}
	}
}

func TestCallerState(t *testing.T) {
	status := func(state, own, shared string) []byte {
		return []byte("Name:\tx\nState:\t" + state + "\nSigPnd:\t" + own + "\nShdPnd:\t" + shared + "\nSigBlk:\tffffffffffffffff\n")
	}
	for _, c := range []struct {
		status        []byte
		dying, asleep bool
	}{
		{status("D (disk sleep)", "0000000000000000", "0000000000000000"), false, true},
		{status("D (disk sleep)", "0000000000000100", "0000000000004000"), true, true},
		{status("D (disk sleep)", "0000000000000000", "0000000000004002"), false, true},
		{status("R (running)", "0000000000000000", "0000000000000100"), true, false},
		{nil, false, false},
	} {
		if dying, asleep := callerState(c.status); dying != c.dying || asleep != c.asleep {
			t.Errorf("%q: %v %v", c.status, dying, asleep)
		}
	}
}

func TestSeconds(t *testing.T) {
	for _, ns := range []int64{0, 1, 1e9, -1, -1e9, -1e9 - 1, 1<<62 - 1, -1 << 62} {
		sec, nsec := seconds(ns)
		if nsec >= 1e9 || nanoseconds(sec, nsec) != ns {
			t.Errorf("%d: %d %d", ns, int64(sec), nsec)
		}
	}
}

func TestPassthroughFlag(t *testing.T) {
	var p Passthrough
	for _, name := range []string{"on", "off", "auto"} {
		if err := p.Set(name); err != nil || p.String() != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if err := p.Set("maybe"); err == nil {
		t.Error("maybe is taken")
	}
}

func TestFileTable(t *testing.T) {
	var ft fileTable
	a, b := &openFile{}, &openFile{}
	fa, fb := ft.add(a), ft.add(b)
	if fa == 0 || fb == 0 || fa == fb {
		t.Fatal(fa, fb)
	}
	if ft.remove(fa) != a || ft.remove(fa) != nil {
		t.Error("removed twice")
	}
	if _, err := ft.get(fa); err != syscall.EBADF {
		t.Error(err)
	}
	if got, err := ft.get(fb); got != b || err != nil {
		t.Error(got, err)
	}
	if fc := ft.add(a); fc != fa {
		t.Error("numbers are not used again: the table would grow for ever")
	}
	if ft.count() != 2 || len(ft.drain()) != 2 || ft.count() != 0 {
		t.Error("drain")
	}
}

// blockedTransport's notifications never return.
type blockedTransport struct{ transport }

func (blockedTransport) InodeNotify(uint64, int64, int64) fuse.Status { select {} }

// TestSlowNotify: a kernel that does not take an invalidation does not hold the core up for long.
func TestSlowNotify(t *testing.T) {
	k := &kernelCache{kernel: blockedTransport{}, log: quiet()}
	begin := time.Now()
	k.InvalidateInode(2, 0, 0)
	if took := time.Since(begin); took > 3*time.Second || k.slow.Load() != 1 {
		t.Errorf("took %v, %d counted", took, k.slow.Load())
	}
}

// fixedCore answers without allocating, so that what is left is ours.
type fixedCore struct{ core }

func (fixedCore) GetAttr(context.Context, wsfs.Ino) (wsfs.Attr, error) { return wsfs.Attr{Ino: 9}, nil }
func (fixedCore) Lookup(context.Context, wsfs.Ino, string) (wsfs.Attr, error) {
	return wsfs.Attr{Ino: 9}, nil
}
func (fixedCore) SetAttr(context.Context, wsfs.Ino, wsfs.SetAttr) (wsfs.Attr, error) {
	return wsfs.Attr{Ino: 9}, nil
}
func (fixedCore) Unlink(context.Context, wsfs.Ino, string) error { return syscall.ENOENT }
func (fixedCore) Mkdir(context.Context, wsfs.Ino, string, uint32, wsfs.Owner) (wsfs.Attr, error) {
	return wsfs.Attr{Ino: 9}, nil
}
func (fixedCore) Retain(wsfs.Ino, uint64) {}

type fixedHandle struct{ handle }

func (fixedHandle) ReadAt(_ context.Context, p []byte, _ int64) (int, error)  { return len(p), nil }
func (fixedHandle) WriteAt(_ context.Context, p []byte, _ int64) (int, error) { return len(p), nil }

// TestAllocations: requests of every day allocate nothing in this package.
func TestAllocations(t *testing.T) {
	f := newFileSystem(fixedCore{}, Options{Log: quiet()}, true)
	fh := f.files.add(&openFile{h: fixedHandle{}})
	cancel := make(chan struct{})
	var (
		entry fuse.EntryOut
		attr  fuse.AttrOut
		buf   = make([]byte, 4096)
		hdr   = &fuse.InHeader{NodeId: 1}
		get   = &fuse.GetAttrIn{}
		set   = &fuse.SetAttrIn{}
		mkdir = &fuse.MkdirIn{}
		read  = &fuse.ReadIn{Fh: fh}
		write = &fuse.WriteIn{Fh: fh}
	)
	for name, fn := range map[string]func() fuse.Status{
		"GETATTR": func() fuse.Status { return f.GetAttr(cancel, get, &attr) },
		"LOOKUP":  func() fuse.Status { return f.Lookup(cancel, hdr, "name", &entry) },
		"SETATTR": func() fuse.Status { return f.SetAttr(cancel, set, &attr) },
		"MKDIR":   func() fuse.Status { return f.Mkdir(cancel, mkdir, "name", &entry) },
		"UNLINK": func() fuse.Status {
			if f.Unlink(cancel, hdr, "name") != fuse.ENOENT {
				return fuse.EIO
			}
			return fuse.OK
		},
		"READ": func() fuse.Status {
			r, status := f.Read(cancel, read, buf)
			if r.Size() != len(buf) {
				return fuse.EIO
			}
			r.Done()
			return status
		},
		"WRITE": func() fuse.Status {
			_, status := f.Write(cancel, write, buf)
			return status
		},
	} {
		if n := testing.AllocsPerRun(200, func() {
			if status := fn(); status != fuse.OK {
				t.Errorf("%s: %v", name, status)
			}
		}); n != 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

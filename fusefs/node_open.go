package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"wsfs"
)

// openOptions translates open(2) flags. Append is never asked of the core: the kernel chooses the offset of an O_APPEND
// write itself, and writes back pages through such handles too. Every handle can read: the kernel fills pages through
// handles that were opened for writing only.
func openOptions(flags uint32) wsfs.OpenOptions {
	return wsfs.OpenOptions{
		Write:    flags&unix.O_ACCMODE != unix.O_RDONLY,
		Truncate: flags&unix.O_TRUNC != 0,
		Excl:     flags&unix.O_EXCL != 0,
	}
}

// Open answers OPEN.
func (f *fileSystem) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		ino := wsfs.Ino(in.NodeId)
		o := openOptions(in.Flags)
		file, err := f.open(ctx, ino, o, out)
		if err != nil {
			return gone(err)
		}
		if o.Truncate && in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
			if err := f.killPriv(ctx, ino); err != nil {
				f.release(file)
				return err
			}
		}
		out.Fh = f.files.add(file)
		return nil
	})
}

// open opens ino in the io mode it is in, or in the one this first open decides.
func (f *fileSystem) open(ctx context.Context, ino wsfs.Ino, o wsfs.OpenOptions, out *fuse.OpenOut) (*openFile, error) {
	oi := f.inodes.acquire(ino)
	h, err := f.openLocked(ctx, ino, oi, o)
	if err == nil {
		if err = f.settle(oi, h, o.Write, out); err != nil {
			f.closeUnused(h)
		}
	}
	oi.mu.Unlock()
	if err != nil {
		f.inodes.drop(ino, oi)
		return nil, err
	}
	return &openFile{h: h, ino: ino, inode: oi, writer: o.Write}, nil
}

// openLocked asks the core for a handle that fits the io mode of oi, whose lock is held.
func (f *fileSystem) openLocked(ctx context.Context, ino wsfs.Ino, oi *openInode, o wsfs.OpenOptions) (handle, error) {
	o.Passthrough = f.passthrough && oi.mode != ioCached
	if o.Passthrough && oi.mode == ioNone && o.Write {
		// The kernel leaves it to us to clear set-user-ID on write, and a passthrough write is not seen here.
		a, err := f.core.GetAttr(ctx, ino)
		if err != nil {
			return nil, err
		}
		o.Passthrough = !privileged(a.Mode)
	}
	return f.core.OpenInode(ctx, ino, o)
}

// Create answers CREATE: make and open in one round trip.
func (f *fileSystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return f.create(cancel, in, out, func(ctx context.Context, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
		if err := checkName(name); err != nil {
			return wsfs.Attr{}, nil, err
		}
		return f.core.Create(ctx, wsfs.Ino(in.NodeId), name, in.Mode&07777, owner(&in.InHeader), o)
	})
}

// Tmpfile answers TMPFILE: a file without a name, which LINK may give it one.
func (f *fileSystem) Tmpfile(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return f.create(cancel, in, out, func(ctx context.Context, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
		return f.core.Tmpfile(ctx, wsfs.Ino(in.NodeId), in.Mode&07777, owner(&in.InHeader), o)
	})
}

func (f *fileSystem) create(cancel <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut, fn func(context.Context, wsfs.OpenOptions) (wsfs.Attr, handle, error)) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		o := openOptions(in.Flags)
		o.Passthrough = f.passthrough && !privileged(in.Mode) && f.sizes.wants(in.Pid)
		a, h, err := fn(ctx, o)
		if err != nil {
			return err
		}
		file, err := f.adopt(ctx, a.Ino, h, o, &out.OpenOut)
		if err != nil {
			return err
		}
		if o.Truncate && in.OpenFlags&fuse.OPEN_KILL_SUIDGID != 0 {
			if err := f.killPriv(ctx, a.Ino); err != nil {
				f.release(file)
				return err
			}
		}
		file.creator = in.Pid
		f.entry(&out.EntryOut, &a)
		out.Fh = f.files.add(file)
		return nil
	})
}

// adopt settles the io mode for a handle the core gave with a new name. Without O_EXCL the file may have existed and be
// open: the handle is then exchanged for one that fits.
func (f *fileSystem) adopt(ctx context.Context, ino wsfs.Ino, h handle, o wsfs.OpenOptions, out *fuse.OpenOut) (*openFile, error) {
	oi := f.inodes.acquire(ino)
	var err error
	if oi.mode == ioPassthrough && h.Backing() == nil {
		f.closeUnused(h)
		o.Truncate = false
		h, err = f.openLocked(ctx, ino, oi, o)
	}
	if err == nil {
		if err = f.settle(oi, h, o.Write, out); err != nil {
			f.closeUnused(h)
		}
	}
	oi.mu.Unlock()
	if err != nil {
		f.inodes.drop(ino, oi)
		return nil, err
	}
	return &openFile{h: h, ino: ino, inode: oi, writer: o.Write}, nil
}

func (f *fileSystem) closeUnused(h handle) {
	if err := h.Close(); err != nil {
		f.log.Error("close a handle nobody got", "inode", h.Ino(), "err", err)
	}
}

// Release answers RELEASE: the last descriptor of an open file is gone. Nobody waits for it.
func (f *fileSystem) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	f.requests.count(in.Opcode)
	file := f.files.remove(in.Fh)
	if file == nil {
		f.log.Error("kernel released a file it has not open", "inode", in.NodeId, "handle", in.Fh)
		return
	}
	if file.creator != 0 {
		f.sizes.saw(file.creator, file.size())
	}
	f.release(file)
}

func (f *fileSystem) release(file *openFile) {
	f.unsettle(file)
	if err := file.h.Close(); err != nil {
		f.log.Error("close", "inode", file.ino, "err", err)
	}
}

// size is how large a created file became, as far as this handle can tell.
func (o *openFile) size() int64 {
	if b := o.h.Backing(); b != nil {
		if st, err := b.Stat(); err == nil {
			return st.Size()
		}
	}
	return o.end.Load()
}

// Flush answers FLUSH, sent by close(2) unless the open said FOPEN_NOFLUSH. ENOSYS: never again for this mount. In
// write-back mode the kernel still writes dirty pages and reports their errors in close(2) before it would ask.
func (f *fileSystem) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	f.requests.count(in.Opcode)
	return fuse.ENOSYS
}

// Fsync answers FSYNC; dirty pages of the kernel have been written before it.
func (f *fileSystem) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		file, err := f.files.get(in.Fh)
		if err != nil {
			return err
		}
		return file.h.Sync(ctx)
	})
}

// Ioctl answers IOCTL: there are none.
func (f *fileSystem) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, inbuf []byte, out *fuse.IoctlOut, outbuf []byte) fuse.Status {
	f.requests.count(in.Opcode)
	return fuse.Status(syscall.ENOTTY)
}

package fusefs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

// Mknod answers MKNOD. The kernel has applied the umask, here and below.
func (f *fileSystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.make(cancel, &in.InHeader, name, out, func(ctx context.Context) (wsfs.Attr, error) {
		return f.core.Mknod(ctx, wsfs.Ino(in.NodeId), name, in.Mode, in.Rdev, owner(&in.InHeader))
	})
}

// Mkdir answers MKDIR.
func (f *fileSystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.make(cancel, &in.InHeader, name, out, func(ctx context.Context) (wsfs.Attr, error) {
		return f.core.Mkdir(ctx, wsfs.Ino(in.NodeId), name, in.Mode&07777, owner(&in.InHeader))
	})
}

// Symlink answers SYMLINK.
func (f *fileSystem) Symlink(cancel <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return f.make(cancel, h, name, out, func(ctx context.Context) (wsfs.Attr, error) {
		return f.core.Symlink(ctx, wsfs.Ino(h.NodeId), name, target, owner(h))
	})
}

// Link answers LINK, also of a file that has no name (O_TMPFILE, or /proc/self/fd).
func (f *fileSystem) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.make(cancel, &in.InHeader, name, out, func(ctx context.Context) (wsfs.Attr, error) {
		return f.core.Link(ctx, wsfs.Ino(in.Oldnodeid), wsfs.Ino(in.NodeId), name)
	})
}

// make runs fn, which makes name, and gives the result to the kernel.
func (f *fileSystem) make(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut, fn func(context.Context) (wsfs.Attr, error)) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		a, err := fn(ctx)
		if err != nil {
			return err
		}
		f.entry(out, &a)
		return nil
	})
}

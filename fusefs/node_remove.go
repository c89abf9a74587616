package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"wsfs"
)

// Unlink answers UNLINK. The inode lives on while it is open or the kernel refers to it.
func (f *fileSystem) Unlink(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		return f.core.Unlink(ctx, wsfs.Ino(h.NodeId), name)
	})
}

// Rmdir answers RMDIR.
func (f *fileSystem) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		return f.core.Rmdir(ctx, wsfs.Ino(h.NodeId), name)
	})
}

// Rename answers RENAME and RENAME2: replace, RENAME_NOREPLACE or RENAME_EXCHANGE.
func (f *fileSystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, name, newName string) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
			return syscall.EINVAL // RENAME_WHITEOUT: we are no layer of an overlay
		}
		if err := checkName(newName); err != nil {
			return err
		}
		return f.core.Rename(ctx, wsfs.Ino(in.NodeId), name, wsfs.Ino(in.Newdir), newName, in.Flags)
	})
}

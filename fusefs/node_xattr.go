package fusefs

import (
	"bytes"
	"context"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

// GetXAttr answers GETXATTR. With a buffer too small it tells the size needed and ERANGE.
func (f *fileSystem) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (size uint32, status fuse.Status) {
	status = f.do(cancel, h, func(ctx context.Context) error {
		if strings.HasPrefix(name, "system.") {
			return syscall.EOPNOTSUPP
		}
		v, err := f.core.GetXattr(ctx, wsfs.Ino(h.NodeId), name)
		if err != nil {
			return gone(err)
		}
		size = uint32(len(v))
		if len(v) > len(dest) {
			return syscall.ERANGE
		}
		copy(dest, v)
		return nil
	})
	return size, status
}

// ListXAttr answers LISTXATTR: names, each ended by a zero byte.
func (f *fileSystem) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (size uint32, status fuse.Status) {
	status = f.do(cancel, h, func(ctx context.Context) error {
		names, err := f.core.ListXattr(ctx, wsfs.Ino(h.NodeId))
		if err != nil {
			return gone(err)
		}
		size = 0
		for _, name := range names {
			if n := copy(dest[min(int(size), len(dest)):], name); n == len(name) && int(size)+n < len(dest) {
				dest[int(size)+n] = 0
			}
			size += uint32(len(name)) + 1
		}
		if int(size) > len(dest) {
			return syscall.ERANGE
		}
		return nil
	})
	return size, status
}

// SetXAttr answers SETXATTR. Names of system. (ACLs) are refused: nothing would obey them.
func (f *fileSystem) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return f.do(cancel, &in.InHeader, func(ctx context.Context) error {
		if strings.HasPrefix(name, "system.") {
			return syscall.EOPNOTSUPP
		}
		return gone(f.core.SetXattr(ctx, wsfs.Ino(in.NodeId), name, bytes.Clone(value), in.Flags))
	})
}

// RemoveXAttr answers REMOVEXATTR.
func (f *fileSystem) RemoveXAttr(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		return gone(f.core.RemoveXattr(ctx, wsfs.Ino(h.NodeId), name))
	})
}

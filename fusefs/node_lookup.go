package fusefs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

// Lookup answers LOOKUP. A missing name is answered with node id 0, so the kernel remembers that it is missing.
func (f *fileSystem) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return f.do(cancel, h, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		err := f.lookup(ctx, wsfs.Ino(h.NodeId), name, out)
		if err == syscall.ENOENT {
			out.NodeId = 0
			out.EntryValid, out.EntryValidNsec = f.entrySec, f.entryNsec
			return nil
		}
		return err
	})
}

// lookup gives out the inode name leads to. Between the core's answer and Retain the name may be replaced from another
// front end and the inode deleted, so it is looked at again once it is retained: what the kernel gets exists.
func (f *fileSystem) lookup(ctx context.Context, parent wsfs.Ino, name string, out *fuse.EntryOut) error {
	for {
		a, err := f.core.Lookup(ctx, parent, name)
		if err != nil {
			return err
		}
		f.core.Retain(a.Ino, 1)
		a2, err := f.core.GetAttr(ctx, a.Ino)
		if err == nil {
			f.fillEntry(out, &a2)
			return nil
		}
		f.core.Forget(a.Ino, 1)
		if err != syscall.ENOENT {
			return err
		}
	}
}

// Forget answers FORGET and each part of BATCH_FORGET.
func (f *fileSystem) Forget(node, n uint64) {
	f.requests.count(opForget)
	f.core.Forget(wsfs.Ino(node), n)
}

// Readlink answers READLINK; the kernel caches the target.
func (f *fileSystem) Readlink(cancel <-chan struct{}, h *fuse.InHeader) (target []byte, status fuse.Status) {
	status = f.do(cancel, h, func(ctx context.Context) error {
		s, err := f.core.Readlink(ctx, wsfs.Ino(h.NodeId))
		target = []byte(s)
		return gone(err)
	})
	return target, status
}

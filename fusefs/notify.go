package fusefs

import (
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"wsfs"
)

// transport is what the file system asks of whatever carries requests between it and the kernel; *fuse.Server is one.
type transport interface {
	RegisterBackingFd(m *fuse.BackingMap) (int32, syscall.Errno)
	UnregisterBackingFd(id int32) syscall.Errno
	InodeNotify(node uint64, off, length int64) fuse.Status
	EntryNotify(parent uint64, name string) fuse.Status
	PruneNotify(nodes []uint64) fuse.Status
}

// notifyWait is how long a caller waits for the kernel to take an invalidation.
const notifyWait = time.Second

// kernelCache tells the kernel what changed by other ways than the mount; it is the wsfs.Kernel of a mount. A call returns
// when the kernel has dropped what it cached, or after a second: the kernel may have to wait for requests in flight, whose
// answers may need the caller. The invalidation then still happens, later.
type kernelCache struct {
	kernel    transport
	log       *slog.Logger
	writeback bool
	inodes    *inodeTable // write-back mode only
	slow      atomic.Uint64
}

// InvalidateInode drops the cached attributes of ino and its cached pages from byte off on, n bytes (n <= 0: to the end;
// off < 0: attributes only).
func (k *kernelCache) InvalidateInode(ino wsfs.Ino, off, n int64) {
	k.tell("inode", func() fuse.Status {
		status := k.kernel.InodeNotify(uint64(ino), off, n)
		if status == fuse.OK && k.writeback {
			// In write-back mode the kernel believes its own size and times of a regular file it knows; it has
			// to forget the inode to learn better, which it can when no file is open, or waits for its RELEASE.
			// Kernels before 6.18 cannot (ENOSYS): there a program that has the file open, or its name cached,
			// goes on seeing the old size.
			k.waitClosed(ino)
			status = k.kernel.PruneNotify([]uint64{uint64(ino)})
			if status == fuse.ENOSYS {
				status = fuse.OK
			}
		}
		return status
	})
}

// waitClosed waits until no file of ino is open, at most for 20 ms: it may be open for good.
func (k *kernelCache) waitClosed(ino wsfs.Ino) {
	if !k.inodes.has(ino) {
		return
	}
	for range 10 {
		time.Sleep(2 * time.Millisecond) // also for the kernel to take the answer to the RELEASE
		if !k.inodes.has(ino) {
			return
		}
	}
}

// InvalidateEntry drops the cached name (or its cached absence), and the cached listing of its directory.
func (k *kernelCache) InvalidateEntry(parent wsfs.Ino, name string) {
	k.tell("entry", func() fuse.Status {
		status := k.kernel.EntryNotify(uint64(parent), name)
		if status == fuse.ENOENT { // it did not know the name, and then keeps a listing that may lack it
			status = k.kernel.InodeNotify(uint64(parent), 0, 0)
		}
		return status
	})
}

// forgetAttr drops the kernel's attributes of ino, from within a request that nobody waits for.
func (f *fileSystem) forgetAttr(ino wsfs.Ino) {
	switch status := f.kernel.InodeNotify(uint64(ino), -1, 0); status {
	case fuse.OK, fuse.ENOENT, fuse.ENODEV, fuse.EBADF, fuse.Status(syscall.ENOTCONN):
	default:
		f.log.Error("kernel keeps old attributes", "inode", ino, "err", syscall.Errno(status))
	}
}

func (k *kernelCache) tell(what string, notify func() fuse.Status) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		switch status := notify(); status {
		case fuse.OK, fuse.ENOENT: // ENOENT: the kernel did not know it
		case fuse.ENODEV, fuse.EBADF, fuse.Status(syscall.ENOTCONN): // unmounted meanwhile
		default:
			k.log.Error("kernel cache not invalidated", "what", what, "err", syscall.Errno(status))
		}
	}()
	timer := time.NewTimer(notifyWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		k.slow.Add(1)
	}
}

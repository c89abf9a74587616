package fusefs

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"wsfs"
)

// Passthrough, step by step. An inode that is open is in one io mode, which its first open decides:
//
//	core.OpenInode(Passthrough)     the core may refuse: Handle.Backing is nil -> cached
//	BACKING_OPEN ioctl -> id        the kernel may refuse -> cached
//	reply FOPEN_PASSTHROUGH, id     the kernel ties inode and backing file together until its last close
//
// Further opens join the mode, with the same id. The kernel leaves the mode at its last close, *before* it sends the
// RELEASE; we leave it when the RELEASE is handled. So we may believe an inode to be open when the kernel knows it is
// not, and never the other way round: what we then answer is a legal first open too.
//
//	us      | open A: mode P, id 7, opens 1 |                 | open B: joins P, id 7, opens 2 | RELEASE A: opens 1
//	kernel  | A open in P                   | A closed: mode - | B open in P                    |
//
// The lock of the inode is held from before the core is asked until the mode is settled, so two parallel first opens
// agree. Leaving page cache behind is no danger: a passthrough open never carries FOPEN_KEEP_CACHE, so the kernel drops the
// pages it had cached for the inode, and while it is open in passthrough none are made.
//
// Times: after a write(2) the kernel asks for attributes again, but a change through a mapping moves mtime and nobody tells
// it. So a GETATTR of an inode with passthrough writers is believed for a second only, and when the last of them is gone and
// mtime is not what the kernel was told last, its attributes are dropped.

// ioMode is how the content of an open inode travels.
type ioMode uint8

const (
	ioNone   ioMode = iota // not open
	ioCached               // READ and WRITE requests
	ioPassthrough
)

// openInode is an inode with open files.
type openInode struct {
	users int // guarded by inodeTable.mu: opens, plus opens being decided

	mu        sync.Mutex
	mode      ioMode // guarded by mu
	opens     int    // guarded by mu
	backingID int32  // guarded by mu; of the kernel, while mode is ioPassthrough

	writers atomic.Int32 // opens for writing, while mode is ioPassthrough
	told    atomic.Int64 // mtime in the last answer the kernel got, ns; of use while there are writers
}

// inodeTable holds the inodes that are open.
type inodeTable struct {
	mu     sync.Mutex
	inodes map[wsfs.Ino]*openInode // guarded by mu
}

// acquire returns the entry of ino with its lock held. Each acquire is paid back by one drop.
func (t *inodeTable) acquire(ino wsfs.Ino) *openInode {
	t.mu.Lock()
	if t.inodes == nil {
		t.inodes = make(map[wsfs.Ino]*openInode)
	}
	oi := t.inodes[ino]
	if oi == nil {
		oi = &openInode{}
		t.inodes[ino] = oi
	}
	oi.users++
	t.mu.Unlock()
	oi.mu.Lock()
	return oi
}

// look returns the entry of ino if it is open in passthrough for writing, else nil.
func (t *inodeTable) look(ino wsfs.Ino) *openInode {
	t.mu.Lock()
	defer t.mu.Unlock()
	if oi := t.inodes[ino]; oi != nil && oi.writers.Load() > 0 {
		return oi
	}
	return nil
}

// has tells whether ino is open.
func (t *inodeTable) has(ino wsfs.Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inodes[ino] != nil
}

// drop gives back an acquire; the lock of oi must not be held by the caller.
func (t *inodeTable) drop(ino wsfs.Ino, oi *openInode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if oi.users--; oi.users == 0 {
		delete(t.inodes, ino)
	}
}

// settle counts one more open of oi, whose lock is held, and fills in what the kernel is told. It fails with EIO where the
// inode is open in passthrough and the core gave a handle without a file: the kernel would refuse it too.
func (f *fileSystem) settle(oi *openInode, h handle, write bool, out *fuse.OpenOut) error {
	if oi.mode == ioNone {
		oi.mode = ioCached
		if file := h.Backing(); file != nil && f.passthrough {
			if id, err := registerBacking(f.kernel, file); err == nil {
				oi.mode, oi.backingID = ioPassthrough, id
			} else {
				f.log.Warn("kernel refused a backing file; going on without", "inode", h.Ino(), "err", err)
			}
		}
	} else if oi.mode == ioPassthrough && h.Backing() == nil {
		return fmt.Errorf("open inode %d: it is open in passthrough, the core gave no file for a further open", h.Ino())
	}
	oi.opens++
	// FOPEN_NOFLUSH: without it every close(2) is a round trip. It has no effect in write-back mode, where FLUSH is
	// answered ENOSYS instead.
	if oi.mode == ioPassthrough {
		if write && oi.writers.Add(1) == 1 {
			oi.told.Store(f.modTime(h.Ino()))
		}
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
		out.BackingID = oi.backingID
		f.passthroughOpens.Add(1)
	} else {
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
		f.cachedOpens.Add(1)
	}
	return nil
}

// unsettle takes back the open of file, whose handle is still open.
func (f *fileSystem) unsettle(file *openFile) {
	ino, oi := file.ino, file.inode
	oi.mu.Lock()
	stale := false
	if oi.mode == ioPassthrough && file.writer && oi.writers.Add(-1) == 0 {
		stale = oi.told.Load() != f.modTime(ino)
	}
	oi.opens--
	if oi.opens == 0 {
		if oi.mode == ioPassthrough {
			if errno := f.kernel.UnregisterBackingFd(oi.backingID); errno != 0 && errno != syscall.EBADF {
				f.log.Warn("kernel keeps a backing file", "inode", ino, "err", errno)
			}
		}
		oi.mode, oi.backingID = ioNone, 0
	}
	oi.mu.Unlock()
	f.inodes.drop(ino, oi)
	if stale {
		f.forgetAttr(ino)
	}
}

// modTime returns the mtime of an open inode in ns, 0 if it cannot be had.
func (f *fileSystem) modTime(ino wsfs.Ino) int64 {
	a, err := f.core.GetAttr(context.Background(), ino)
	if err != nil {
		return 0
	}
	return a.Mtime
}

// registerBacking makes file known to the kernel.
func registerBacking(k transport, file *os.File) (int32, error) {
	raw, err := file.SyscallConn() // no file.Fd: that would make the file blocking for everybody
	if err != nil {
		return 0, err
	}
	var id int32
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		id, errno = k.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return id, err
}

// passthroughPossible tells why this process cannot have passthrough, as far as can be known before mounting.
func passthroughPossible() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("kernel version: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel version %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 9 {
		return fmt.Errorf("kernel %s is older than 6.9", release)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		return fmt.Errorf("capabilities of this process: %w", err)
	}
	if caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return fmt.Errorf("this process lacks CAP_SYS_ADMIN (run as root)")
	}
	return nil
}

// stackDepth is how many file systems may lie between us and a disk: 1, or 2 where dir (that of the staging files) is on
// overlayfs. 2 is given only where needed: it forbids an overlay on top of the mount.
func stackDepth(dir string) int {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && int64(st.Type) == unix.OVERLAYFS_SUPER_MAGIC {
		return 2
	}
	return 1
}

// probePassthrough registers a scratch file of dir with the kernel behind k and forgets it again.
func probePassthrough(k transport, negotiated uint64, dir string) error {
	if negotiated&fuse.CAP_PASSTHROUGH == 0 {
		return fmt.Errorf("the kernel was built without FUSE passthrough")
	}
	file, err := os.CreateTemp(dir, ".passthrough-probe-")
	if err != nil {
		return fmt.Errorf("probe file: %w", err)
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("probe file: %w", err)
	}
	id, err := registerBacking(k, file)
	if err != nil {
		return fmt.Errorf("register a file of %s with the kernel: %w", dir, err)
	}
	if errno := k.UnregisterBackingFd(id); errno != 0 {
		return fmt.Errorf("unregister a file of %s: %w", dir, errno)
	}
	return nil
}

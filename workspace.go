package wsfs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

// Errors of Open and Close besides the store's and the syncer's.
var (
	// ErrInUse: another process on this host has the cache directory open.
	ErrInUse = errors.New("cache directory is in use by another process")
	// ErrUnsynced: work that is not in the store was left in the cache directory; the next Open goes on with it.
	ErrUnsynced = errors.New("unsynced work is left in the cache directory")
	// ErrDamaged: the metadata on this host cannot be trusted. Nothing was changed.
	ErrDamaged = metadata.ErrDamaged
)

// Options configures Open; only CacheDir is required.
type Options struct {
	// CacheDir holds meta/, staging/, packs/ and lock. One workspace has one, and one process at a time has it open.
	CacheDir string
	// CacheSize bounds what is kept of clean content on this host, bytes (default 10 GiB).
	CacheSize int64
	// DirtyLimit bounds content that is not in the store yet, bytes (default 16 GiB). Writers wait at it while commits
	// make progress, and get ENOSPC while they do not.
	DirtyLimit int64
	// CommitQuiet and CommitMax: a background commit is made after this long without a change (default 1 s), and at the
	// latest this long after the first one (default 5 s).
	CommitQuiet, CommitMax time.Duration
	// FsyncStore makes fsync wait for a commit.
	FsyncStore bool
	// ReadOnly opens the newest commit and follows newer ones; CacheDir is shared with a writer without harm.
	ReadOnly bool
	// Takeover takes the workspace from a writer that still holds the lease, and fences it.
	Takeover bool
	// Create makes the workspace if the pool does not have it.
	Create bool
	// Holder names us to others who want the workspace (default user@host).
	Holder string
	Log    *slog.Logger // default: nothing is logged
}

func (o *Options) fill() error {
	if o.CacheDir == "" {
		return errors.New("wsfs: Options.CacheDir is empty")
	}
	if o.CacheSize <= 0 {
		o.CacheSize = 10 << 30
	}
	if o.DirtyLimit <= 0 {
		o.DirtyLimit = 16 << 30
	}
	if o.CommitQuiet <= 0 {
		o.CommitQuiet = time.Second
	}
	if o.CommitMax <= 0 {
		o.CommitMax = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

const (
	inodeCacheLimit = 100_000
	pageCacheBytes  = 24 << 20
	chunkMemory     = 24 << 20
)

// Workspace is one open workspace. It is safe for concurrent use.
type Workspace struct {
	name     string
	o        Options
	log      *slog.Logger
	repo     *syncer.Repo
	reader   *blobs.Reader
	packs    *blobs.PackCache // nil where the store is on this host
	pages    *metadata.PageCache
	live     *metadata.Live
	staging  *staging
	writer   *syncer.Writer // nil if read-only
	lease    *syncer.Lease
	lock     *os.File
	readOnly bool
	writerID string
	tempDir  string // cache directory of our own, removed at Close

	closed      atomic.Bool
	stop        context.CancelFunc
	running     sync.WaitGroup
	housework   chan struct{}
	dirtyBytes  atomic.Int64          // content not yet in the store
	cleanCopies atomic.Int64          // bytes of staging files kept as local copies
	frozenErr   atomic.Pointer[error] // why the workspace turned read-only
	watching    atomic.Int32
	following   atomic.Pointer[syncer.Commit] // read-only: the commit shown

	inodeLimit int
	spaceSeen  atomic.Int64 // when free space was last looked at, ns
	spaceFree  atomic.Int64 // bytes then

	mu        sync.Mutex // guards everything below
	inodes    map[Ino]*inode
	holds     map[Ino]uint64 // kernel references
	super     metadata.Super
	version   uint64
	liveFiles map[*file]struct{} // files with passthrough writers
	frozen    int                // open snapshots; no staging file is removed meanwhile

	watchMu  sync.Mutex
	watchers map[*Watcher]struct{}
	kernel   atomic.Pointer[Kernel]
}

// Kernel is a kernel that has the workspace mounted: it is told what changed behind its back.
type Kernel interface {
	InvalidateInode(ino Ino, off, n int64)
	InvalidateEntry(parent Ino, name string)
}

// SetKernel sets the kernel that has the workspace mounted, nil when it is unmounted: the references it held are gone
// then, and with them the orphans that nothing else holds.
func (w *Workspace) SetKernel(k Kernel) {
	if k != nil {
		w.kernel.Store(&k)
		return
	}
	w.kernel.Store(nil)
	w.mu.Lock()
	clear(w.holds)
	w.mu.Unlock()
	if w.readOnly {
		return
	}
	if err := w.recoverOrphans(context.Background()); err != nil {
		w.log.Warn("delete orphans after unmount", "err", err)
	}
}

// Name is the workspace's name in its pool.
func (w *Workspace) Name() string { return w.name }

// StoreURL names the store without secrets.
func (w *Workspace) StoreURL() string { return w.repo.Store().URL() }

// CacheDir is the directory of local state.
func (w *Workspace) CacheDir() string { return w.o.CacheDir }

// ReadOnly tells whether the workspace was opened read-only or has been fenced.
func (w *Workspace) ReadOnly() bool { return w.readOnly || w.frozenErr.Load() != nil }

// timeGrain is the granularity of the times the core gives, ns; times that programs set keep every nanosecond. Files that
// are made and written at once then have one time instead of four, which a commit stores in fewer bytes.
const timeGrain = int64(time.Millisecond)

func (w *Workspace) now() int64 { return time.Now().UnixNano() / timeGrain * timeGrain }

// writable is EROFS for a read-only or fenced workspace.
func (w *Workspace) writable() error {
	if w.ReadOnly() {
		return syscall.EROFS
	}
	return nil
}

func (w *Workspace) touch() {
	if w.writer != nil {
		w.writer.Touch()
	}
}

func (w *Workspace) holder() string {
	if w.o.Holder != "" {
		return w.o.Holder
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("uid %d@%s", os.Getuid(), host)
}

// freezeFor turns the workspace read-only for good; everything local is kept.
func (w *Workspace) freezeFor(err error) { w.frozenErr.CompareAndSwap(nil, &err) }

// Commit makes everything acknowledged so far durable in the store and returns the commit that holds it.
func (w *Workspace) Commit(ctx context.Context) (*syncer.Commit, error) {
	if w.readOnly {
		return nil, fmt.Errorf("commit %q: %w", w.name, syscall.EROFS)
	}
	return w.writer.Commit(ctx, "")
}

// SyncLocal makes everything acknowledged so far survive a power loss.
func (w *Workspace) SyncLocal(ctx context.Context) error {
	if w.readOnly {
		return nil
	}
	w.mu.Lock()
	open := make([]*file, 0, len(w.liveFiles))
	for f := range w.liveFiles {
		open = append(open, f)
	}
	w.mu.Unlock()
	for _, f := range open {
		if err := w.recordLive(f); err != nil {
			return err
		}
	}
	if err := w.syncStagingFiles(); err != nil {
		return w.diskFault("sync staging files", err)
	}
	return w.syncUp(ctx)
}

// syncStagingFiles makes all staging files durable at once.
func (w *Workspace) syncStagingFiles() error {
	d, err := os.Open(w.staging.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// syncUp makes the journal durable and, with FsyncStore, waits for a commit.
func (w *Workspace) syncUp(ctx context.Context) error {
	if err := w.live.Sync(); err != nil {
		return w.localFault(err)
	}
	if w.o.FsyncStore && !w.readOnly {
		if _, err := w.writer.Commit(ctx, ""); err != nil {
			return w.storeFault("commit for fsync", err)
		}
	}
	return nil
}

// Close commits everything and closes. If that fails or ctx ends first it closes all the same and returns ErrUnsynced
// with the reason: the work is in the cache directory, and the next Open goes on with it.
func (w *Workspace) Close(ctx context.Context) error {
	if w.closed.Swap(true) {
		return fmt.Errorf("close %q: %w", w.name, fs.ErrClosed)
	}
	var unsynced error
	if w.writer != nil {
		if _, err := w.writer.Commit(ctx, ""); err != nil {
			if dirty, derr := w.live.Dirty(); dirty || derr != nil {
				unsynced = fmt.Errorf("%w (%s): %w", ErrUnsynced, w.o.CacheDir, errors.Join(err, derr))
			}
		}
	}
	if w.stop != nil {
		w.stop()
	}
	w.running.Wait()
	if w.lease != nil && unsynced == nil {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := w.lease.Release(release); err != nil {
			w.log.Warn("release lease", "err", err)
		}
	}
	return errors.Join(unsynced, w.release())
}

// abandon closes without a commit, as if the process had ended: the journal keeps what is not in the store.
func (w *Workspace) abandon() error {
	w.closed.Store(true)
	return w.release()
}

// release closes what is open on this host.
func (w *Workspace) release() error {
	var errs []error
	if w.stop != nil {
		w.stop()
		w.running.Wait()
	}
	if w.live != nil {
		if w.staging != nil {
			errs = append(errs, w.removeDoomed())
			w.staging.close()
		}
		errs = append(errs, w.live.Close())
	}
	if w.reader != nil {
		w.reader.Close()
	}
	if w.packs != nil {
		errs = append(errs, w.packs.Close())
	}
	if w.lock != nil {
		errs = append(errs, w.lock.Close())
	}
	if w.tempDir != "" {
		errs = append(errs, os.RemoveAll(w.tempDir))
	}
	return errors.Join(errs...)
}

// Statfs tells how much there is and how much more fits: what the cache disk can take. Reading it never waits.
func (w *Workspace) Statfs(context.Context) (Statfs, error) {
	w.mu.Lock()
	s := w.super
	w.mu.Unlock()
	var disk unix.Statfs_t
	if err := unix.Statfs(w.o.CacheDir, &disk); err != nil {
		return Statfs{}, w.diskFault("statfs of cache directory", err)
	}
	free := disk.Bavail * uint64(disk.Bsize)
	if w.readOnly {
		free = 0
	}
	const inodes = 1 << 40
	return Statfs{Total: s.Bytes + free, Free: free, Avail: free, Files: s.Inodes + inodes, FreeFiles: inodes}, nil
}

func decodeIno(v []byte) (Ino, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("inode number: %w: %d bytes", metadata.ErrRecord, len(v))
	}
	return Ino(binary.BigEndian.Uint64(v)), nil
}

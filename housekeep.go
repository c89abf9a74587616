package wsfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

const (
	// houseTick is how often files written by a kernel are looked at.
	houseTick = 500 * time.Millisecond
	// diskReserve is how much of the cache disk is left for the journal: writers get ENOSPC before it is touched.
	diskReserve = 96 << 20
	// spaceAge is how long a look at the disk's free space counts.
	spaceAge = 100 * time.Millisecond
)

func (w *Workspace) wakeHousekeeper() {
	select {
	case w.housework <- struct{}{}:
	default:
	}
}

// housekeep does what no operation should wait for: spare staging files, removing dropped ones, noticing what a kernel
// wrote, keeping the cache within its size.
func (w *Workspace) housekeep(ctx context.Context) {
	tick := time.NewTicker(houseTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.noticeWrites()
		case <-w.housework:
		}
		if err := w.staging.refill(); err != nil {
			w.log.Warn("make spare staging files", "err", err)
		}
		if err := w.removeDoomed(); err != nil {
			w.log.Warn("remove staging files", "err", err)
		}
		if err := w.live.DropContentLogs(); err != nil {
			w.log.Warn("remove content logs", "err", err)
		}
		w.trimStaging()
	}
}

// noticeWrites records what kernels wrote by themselves since the last look.
func (w *Workspace) noticeWrites() {
	w.mu.Lock()
	files := make([]*file, 0, len(w.liveFiles))
	for f := range w.liveFiles {
		files = append(files, f)
	}
	w.mu.Unlock()
	for _, f := range files {
		if err := w.recordLive(f); err != nil {
			w.log.Error("record a kernel's writes", "ino", f.n.rec.Ino, "err", err)
		}
	}
}

// removeDoomed removes dropped staging files once the ops that dropped them are on stable storage and no snapshot needs
// them.
func (w *Workspace) removeDoomed() error {
	w.mu.Lock()
	frozen := w.frozen > 0
	w.mu.Unlock()
	if frozen {
		return nil
	}
	doomed := w.staging.takeDoomed()
	if len(doomed) == 0 {
		return nil
	}
	err := w.live.Sync()
	for _, n := range doomed {
		if err != nil {
			w.staging.doom(n)
			continue
		}
		if rerr := os.Remove(w.staging.path(n)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			w.log.Warn("remove staging file", "err", rerr)
		}
	}
	return err
}

// trimStaging drops clean local copies, oldest numbers first, while they take more than the cache may hold or the disk
// runs out of space.
func (w *Workspace) trimStaging() {
	have := w.cleanCopies.Load()
	keep := have
	if have > w.o.CacheSize {
		keep = w.o.CacheSize / 2
	}
	if free := w.freeSpace(); free < 2*diskReserve {
		keep = max(min(keep, have-(2*diskReserve-free)), 0)
	}
	if keep == have {
		return
	}
	if w.dropCopies(keep); w.cleanCopies.Load() < have {
		w.wakeHousekeeper() // to remove them
	}
}

// dropCopies drops clean local copies that nobody has open until they take at most keep bytes.
func (w *Workspace) dropCopies(keep int64) {
	var owners []Ino
	err := w.live.ScanLocal([]byte{metadata.KeyStaging}, func(_, value []byte) error {
		ino, err := decodeIno(value)
		owners = append(owners, ino)
		return err
	})
	if err != nil {
		w.log.Warn("look for clean copies", "err", err)
		return
	}
	for _, ino := range owners {
		if w.cleanCopies.Load() <= keep {
			return
		}
		w.dropCopy(ino)
	}
}

func (w *Workspace) dropCopy(ino Ino) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.localInode(ino)
	if err != nil || n == nil || n.file != nil || n.rec.Staging == 0 || n.rec.Content.Local() {
		return
	}
	o := w.begin()
	o.clean = true
	o.del(metadata.StagingKey(n.rec.Staging))
	w.staging.doom(n.rec.Staging)
	n.rec.Staging = 0
	o.save(n)
	if err := o.commit(); err != nil {
		w.log.Warn("drop clean copy", "ino", ino, "err", err)
	}
}

// freeSpace is what the cache disk has left, at most spaceAge old.
func (w *Workspace) freeSpace() int64 {
	now := time.Now().UnixNano()
	if now-w.spaceSeen.Load() < int64(spaceAge) {
		return w.spaceFree.Load()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(w.o.CacheDir, &st); err != nil {
		w.log.Warn("statfs of cache directory", "err", err)
		return 1 << 62
	}
	free := int64(st.Bavail) * st.Bsize
	w.spaceFree.Store(free)
	w.spaceSeen.Store(now)
	return free
}

// room holds a writer back while too much waits to be committed, and refuses it with ENOSPC when the cache disk is full
// or commits make no progress.
func (w *Workspace) room(ctx context.Context) error {
	if w.freeSpace() < diskReserve {
		if w.packs != nil {
			w.packs.Evict(diskReserve)
		}
		w.wakeHousekeeper()
		w.spaceSeen.Store(0)
		if w.freeSpace() < diskReserve {
			return syscall.ENOSPC
		}
	}
	for w.dirtyBytes.Load() > w.o.DirtyLimit {
		if s := w.writer.Status(); s.LastError != nil || s.Fenced != nil {
			return syscall.ENOSPC
		}
		w.writer.Touch()
		select {
		case <-ctx.Done():
			return syscall.EINTR
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

package wsfs

import (
	"context"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

// Handle is an open file. Its methods are safe for concurrent use; Close is called once, after everything else.
type Handle struct {
	w       *Workspace
	f       *file
	write   bool
	append  bool
	backing *os.File
}

// Create makes a regular file and opens it. If the name exists it is opened instead, unless o.Excl is set (EEXIST).
func (w *Workspace) Create(ctx context.Context, parent Ino, name string, mode uint32, own Owner, o OpenOptions) (Attr, *Handle, error) {
	a, n, err := w.create(ctx, parent, name, mode&07777|syscall.S_IFREG, own, func(n *inode) { w.acquire(n) })
	if err == syscall.EEXIST && !o.Excl {
		if a, err = w.Lookup(ctx, parent, name); err != nil {
			return a, nil, err
		}
		h, err := w.OpenInode(ctx, a.Ino, o)
		if err == nil && o.Truncate {
			a, err = w.GetAttr(ctx, a.Ino)
		}
		return a, h, err
	}
	if err != nil {
		return a, nil, err
	}
	return w.created(a, n.file, o)
}

// created finishes opening a fresh, empty file.
func (w *Workspace) created(a Attr, f *file, o OpenOptions) (Attr, *Handle, error) {
	h := &Handle{w: w, f: f, write: o.Write, append: o.Append}
	if err := h.start(o); err != nil {
		h.Close()
		return a, nil, err
	}
	return a, h, nil
}

// start gives a fresh file its first form.
func (h *Handle) start(o OpenOptions) error {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.form = formSmall
	if !o.Passthrough || !o.Write {
		return nil
	}
	if err := f.newStaging(); err != nil {
		return err
	}
	f.form = formStaged
	return h.back(true)
}

// Tmpfile makes a regular file without a name and opens it; Link can name it unless o.Excl is set.
func (w *Workspace) Tmpfile(ctx context.Context, parent Ino, mode uint32, own Owner, o OpenOptions) (Attr, *Handle, error) {
	if err := w.writable(); err != nil {
		return Attr{}, nil, err
	}
	if err := w.room(ctx); err != nil {
		return Attr{}, nil, err
	}
	var a Attr
	var f *file
	err := w.locked(ctx, func() error {
		dir, err := w.dir(parent)
		if err != nil {
			return err
		}
		n := w.makeInode(dir, mode&07777|syscall.S_IFREG, own)
		n.rec.Nlink = 0
		f = w.acquire(n)
		f.linkable = !o.Excl
		op := w.begin()
		op.super = true
		op.save(n)
		op.put(metadata.OrphanKey(n.rec.Ino), []byte{})
		a = w.attr(n)
		return op.commit()
	})
	if err != nil {
		return a, nil, err
	}
	return w.created(a, f, o)
}

// OpenInode opens a file. Errors: EISDIR, ELOOP for a symlink, EINVAL for anything else that has no content.
func (w *Workspace) OpenInode(ctx context.Context, ino Ino, o OpenOptions) (*Handle, error) {
	if o.Write || o.Truncate {
		if err := w.writable(); err != nil {
			return nil, err
		}
		if err := w.room(ctx); err != nil {
			return nil, err
		}
	}
	h := &Handle{w: w, write: o.Write, append: o.Append}
	extents := false
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		switch {
		case err != nil:
			return err
		case n.rec.IsDir():
			return syscall.EISDIR
		case n.rec.IsSymlink():
			return syscall.ELOOP
		case !n.rec.IsRegular():
			return syscall.EINVAL
		}
		h.f = w.acquire(n)
		extents = n.rec.Content == metadata.ContentExtents
		return nil
	})
	if err == nil && extents {
		// Now, because the tree forgets them with the first commit after the file is unlinked.
		err = h.f.loadNow(ctx)
	}
	if err != nil {
		if h.f != nil {
			h.Close()
		}
		return nil, err
	}
	if err := h.prepare(ctx, o); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// prepare truncates and finds out whether the kernel may have the staging file.
func (h *Handle) prepare(ctx context.Context, o OpenOptions) error {
	if o.Truncate {
		if err := h.f.truncate(ctx, 0); err != nil {
			return err
		}
	}
	if !o.Passthrough {
		return nil
	}
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return err
	}
	if f.form == formChunks && o.Write && f.size > smallMax && f.size <= hydrateMax {
		if err := f.hydrate(ctx, f.size); err != nil {
			return err
		}
	}
	if f.form != formStaged {
		return nil
	}
	if o.Write {
		if err := f.dirtyStaging(); err != nil {
			return err
		}
	}
	return h.back(o.Write)
}

// back makes the staging file the handle's backing file. f.mu is held for writing. For a writer the record says Live from
// here on: after a crash size and times are then taken from the file.
func (h *Handle) back(write bool) error {
	f, w := h.f, h.w
	w.mu.Lock()
	defer w.mu.Unlock()
	h.backing = f.stg
	f.backed++
	if !write {
		return nil
	}
	f.writers++
	if f.writers > 1 {
		return nil
	}
	w.liveFiles[f] = struct{}{}
	o := w.begin()
	f.n.rec.Live = true
	if err := f.record(&o, false); err != nil {
		return err
	}
	o.save(f.n)
	return o.commit()
}

// Ino is the inode the handle has open.
func (h *Handle) Ino() Ino { return h.f.n.rec.Ino }

// Backing returns the file on disk that holds the whole content and that a kernel may read (and, for a handle opened for
// writing, write) by itself; nil if there is none. It stays open as long as the handle.
func (h *Handle) Backing() *os.File { return h.backing }

// ReadAt reads; fewer bytes than asked for only at the end of the file, and then without an error.
func (h *Handle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return h.f.readAt(ctx, p, off)
}

// WriteAt writes p at off, or at the end if the handle appends.
func (h *Handle) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	if !h.write {
		return 0, syscall.EBADF
	}
	if err := h.w.writable(); err != nil {
		return 0, err
	}
	if err := h.w.room(ctx); err != nil {
		return 0, err
	}
	return h.f.writeAt(ctx, p, off, h.append)
}

// Truncate sets the size.
func (h *Handle) Truncate(ctx context.Context, size int64) error {
	if !h.write {
		return syscall.EBADF
	}
	if err := h.w.writable(); err != nil {
		return err
	}
	return h.f.truncate(ctx, size)
}

func (w *Workspace) truncate(ctx context.Context, ino Ino, size int64) error {
	h, err := w.OpenInode(ctx, ino, OpenOptions{Write: true})
	if err != nil {
		return err
	}
	err = h.Truncate(ctx, size)
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	return err
}

// Allocate is fallocate(2) with mode 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE; EOPNOTSUPP for others.
func (h *Handle) Allocate(ctx context.Context, mode uint32, off, n int64) error {
	if !h.write {
		return syscall.EBADF
	}
	if err := h.w.writable(); err != nil {
		return err
	}
	if err := h.w.room(ctx); err != nil {
		return err
	}
	return h.f.allocate(ctx, mode, off, n)
}

// Seek is lseek(2) with SEEK_DATA or SEEK_HOLE.
func (h *Handle) Seek(ctx context.Context, off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, syscall.EINVAL
	}
	return h.f.seek(ctx, off, whence)
}

// copyBuffer is how much CopyRange moves at a time where the kernel cannot do it.
const copyBuffer = 1 << 20

// CopyRange copies n bytes from off to dstOff of another file and returns how many it copied: fewer at the end of the file.
func (h *Handle) CopyRange(ctx context.Context, off int64, dst *Handle, dstOff, n int64) (int64, error) {
	if !dst.write {
		return 0, syscall.EBADF
	}
	if err := h.w.writable(); err != nil {
		return 0, err
	}
	if err := h.w.room(ctx); err != nil {
		return 0, err
	}
	if h.f == dst.f && off < dstOff+n && dstOff < off+n {
		return 0, syscall.EINVAL
	}
	if done, copied, err := h.copyStaged(ctx, off, dst, dstOff, n); done {
		return copied, err
	}
	buf := make([]byte, min(n, copyBuffer))
	var total int64
	for total < n {
		got, err := h.f.readAt(ctx, buf[:min(int64(len(buf)), n-total)], off+total)
		if err != nil || got == 0 {
			return total, err
		}
		if _, err := dst.f.writeAt(ctx, buf[:got], dstOff+total, false); err != nil {
			return total, err
		}
		total += int64(got)
	}
	return total, nil
}

// copyStaged lets the kernel copy between two staging files; done is false where that is not what there is.
func (h *Handle) copyStaged(ctx context.Context, off int64, dst *Handle, dstOff, n int64) (done bool, copied int64, err error) {
	if h.f == dst.f {
		return false, 0, nil
	}
	h.f.mu.Lock()
	err = h.f.load(ctx)
	src := h.f.stg
	staged := h.f.form == formStaged
	h.f.mu.Unlock()
	if err != nil || !staged || n <= smallMax {
		return err != nil, 0, err
	}
	f := dst.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(ctx); err != nil {
		return true, 0, err
	}
	if dstOff+n > maxFileSize {
		return true, 0, syscall.EFBIG
	}
	if err := f.stage(ctx); err != nil {
		return true, 0, err
	}
	if err := f.dirtyStaging(); err != nil {
		return true, 0, err
	}
	copied, err = copyFileRange(src, off, f.stg, dstOff, n)
	if err != nil && copied == 0 {
		return true, 0, h.w.diskFault("copy between staging files", err)
	}
	return true, copied, f.recordContent(true)
}

func copyFileRange(src *os.File, off int64, dst *os.File, dstOff, n int64) (int64, error) {
	var total int64
	for total < n {
		var got int
		var err error
		cerr := control(src, func(in int) {
			cerr := control(dst, func(out int) {
				a, b := off+total, dstOff+total
				got, err = unix.CopyFileRange(in, &a, out, &b, int(min(n-total, 1<<30)), 0)
			})
			if err == nil {
				err = cerr
			}
		})
		if err == nil {
			err = cerr
		}
		if err != nil || got == 0 {
			return total, err
		}
		total += int64(got)
	}
	return total, nil
}

// Sync is fsync(2): content and attributes survive a power loss, or with Options.FsyncStore the loss of this host.
func (h *Handle) Sync(ctx context.Context) error {
	f, w := h.f, h.w
	f.mu.RLock()
	stg := f.stg
	f.mu.RUnlock()
	if stg != nil {
		var err error
		if cerr := control(stg, func(fd int) { err = unix.Fdatasync(fd) }); cerr != nil {
			err = cerr
		}
		if err != nil {
			return w.diskFault("sync staging file", err)
		}
		if err := w.staging.syncNames(); err != nil {
			return w.diskFault("sync staging directory", err)
		}
		if err := w.recordLive(f); err != nil {
			return err
		}
	}
	return w.syncUp(ctx)
}

// recordLive puts what a kernel wrote behind our back into the journal.
func (w *Workspace) recordLive(f *file) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.refresh(f.n) {
		return nil
	}
	o := w.begin()
	o.save(f.n)
	w.notify(Event{Kind: EventWrite, Ino: f.n.rec.Ino})
	return o.commit()
}

// Flush is what a close(2) of one of the handle's descriptors does: nothing waits to be written, so nothing can fail.
func (h *Handle) Flush(context.Context) error { return nil }

// Close ends the handle. The last one of an orphan deletes it.
func (h *Handle) Close() error {
	f, w := h.f, h.w
	f.mu.Lock()
	w.mu.Lock()
	var err error
	if h.backing != nil {
		f.backed--
		if h.write {
			err = f.writerGone()
		}
	}
	last := f.opens == 1
	if last && err == nil {
		err = f.shrink()
	}
	f.opens--
	orphan := false
	if last {
		f.n.file = nil
		orphan = f.n.rec.Nlink == 0 && w.holds[f.n.rec.Ino] == 0
	}
	w.mu.Unlock()
	if last && f.stg != nil {
		f.stg.Close()
		f.stg = nil
	}
	f.mu.Unlock()
	if orphan && !w.readOnly {
		if rerr := w.reap(context.Background(), f.n.rec.Ino); err == nil {
			err = rerr
		}
	}
	return err
}

// writerGone takes note of the end of a passthrough writer. w.mu is held.
func (f *file) writerGone() error {
	w := f.w
	w.refresh(f.n)
	if f.writers--; f.writers > 0 {
		return nil
	}
	delete(w.liveFiles, f)
	f.n.rec.Live = false
	o := w.begin()
	if s := f.settled; s != nil && s.Version == f.n.rec.Version && f.n.rec.Content == metadata.ContentStaged {
		o.clean = true
		settleRecord(&f.n.rec, s)
	}
	o.save(f.n)
	w.notify(Event{Kind: EventWrite, Ino: f.n.rec.Ino})
	return o.commit()
}

// keepStaging is the size from which a file that nobody has open keeps its staging file instead of going back into the
// journal, bytes.
const keepStaging = 64 << 10

// shrink moves a small file that turned out not to need its staging file into the journal. f.mu and w.mu are held, and
// nobody else has the file open.
func (f *file) shrink() error {
	r := &f.n.rec
	if f.form != formStaged || r.Content != metadata.ContentStaged || r.Size > keepStaging || r.Alloc < r.Size || r.Nlink == 0 {
		return nil
	}
	data := make([]byte, r.Size)
	if n, err := f.stg.ReadAt(data, 0); n < len(data) {
		return f.w.diskFault("read staging file", err)
	}
	mtime, ctime := r.Mtime, r.Ctime
	f.data, f.form = data, formSmall
	f.stg.Close()
	f.stg, f.number = nil, 0
	o := f.w.begin()
	if err := f.journal(&o); err != nil {
		return err
	}
	if err := f.record(&o, false); err != nil {
		return err
	}
	r.Mtime, r.Ctime = mtime, ctime
	o.save(f.n)
	return o.commit()
}

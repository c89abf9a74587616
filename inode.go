package wsfs

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"wsfs/metadata"
)

// inode is the in-memory form of an inode record. It can be dropped at any time unless file is set, since every change
// is appended to the journal at once.
type inode struct {
	rec  metadata.Inode
	file *file // content and open handles; nil while nothing has the file open

	savedAlloc int64 // what the superblock and the dirty count know of the record
	savedDirty int64
	savedCopy  int64
	savedLink  bool
}

func newInode(rec metadata.Inode) *inode {
	n := &inode{rec: rec}
	n.account()
	return n
}

func (n *inode) account() {
	n.savedAlloc, n.savedDirty, n.savedLink = n.rec.Alloc, dirtySize(&n.rec), n.rec.Nlink > 0
	n.savedCopy = copySize(&n.rec)
	if !n.savedLink {
		n.savedAlloc = 0
	}
}

// dirtySize is what a record adds to the unsynced bytes.
func dirtySize(r *metadata.Inode) int64 {
	if r.Content.Local() && r.Nlink > 0 {
		return r.Size
	}
	return 0
}

// copySize is what a record's clean local copy takes.
func copySize(r *metadata.Inode) int64 {
	if r.Staging != 0 && !r.Content.Local() && r.Nlink > 0 {
		return r.Alloc
	}
	return 0
}

// fault says that an operation needs a key range of the committed tree that is not on this host. It is loaded without
// the lock, then the operation starts again.
type fault struct{ from, to []byte }

func (*fault) Error() string { return "metadata is not on this host" }

// locked runs fn with w.mu held, loading what it misses and starting over until it needs nothing more. fn must change
// nothing before it has read everything it needs.
func (w *Workspace) locked(ctx context.Context, fn func() error) error {
	for {
		w.mu.Lock()
		err := fn()
		w.mu.Unlock()
		f, missing := err.(*fault)
		if !missing {
			return err
		}
		if err := w.load(ctx, f); err != nil {
			return err
		}
	}
}

func (w *Workspace) load(ctx context.Context, f *fault) error {
	t := w.live.Base()
	if t == nil {
		return fmt.Errorf("load metadata: %w", metadata.ErrDamaged)
	}
	var err error
	if f.to == nil {
		_, _, err = t.Get(ctx, f.from)
	} else {
		if err = t.Scan(ctx, f.from, f.to, func(_, _ []byte) error { return nil }); err == nil {
			_, _, err = t.Get(ctx, f.to)
		}
	}
	return w.storeFault("load metadata", err)
}

// get reads a live value with w.mu held: nil if the key is not there, a *fault if it must come from the store.
func (w *Workspace) get(key []byte) ([]byte, error) {
	v, known, err := w.live.GetLocal(key)
	if err != nil {
		return nil, w.localFault(err)
	}
	if known {
		return v, nil
	}
	t := w.live.Base()
	if t == nil {
		return nil, nil
	}
	if !t.Cached(key) {
		return nil, &fault{from: key}
	}
	v, ok, err := t.Get(context.Background(), key)
	if err != nil {
		return nil, w.storeFault("read metadata", err)
	}
	if !ok {
		return nil, nil
	}
	return v, nil
}

// inode returns the inode with this number; ENOENT (ESTALE to a kernel) if there is none. w.mu is held.
func (w *Workspace) inode(ino Ino) (*inode, error) {
	if n := w.inodes[ino]; n != nil {
		return n, nil
	}
	v, err := w.get(metadata.InodeKey(ino))
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, syscall.ENOENT
	}
	rec, err := metadata.DecodeInode(ino, v)
	if err != nil {
		return nil, w.localFault(err)
	}
	n := newInode(*rec)
	w.keep(n)
	return n, nil
}

// keep puts an inode into the cache, making room if it is full. w.mu is held.
func (w *Workspace) keep(n *inode) {
	if len(w.inodes) >= w.inodeLimit {
		room := w.inodeLimit / 16
		for ino, old := range w.inodes {
			if old.file == nil {
				delete(w.inodes, ino)
				if room--; room <= 0 {
					break
				}
			}
		}
	}
	w.inodes[n.rec.Ino] = n
}

// dir returns the inode of a directory; ENOTDIR for anything else. w.mu is held.
func (w *Workspace) dir(ino Ino) (*inode, error) {
	n, err := w.inode(ino)
	if err != nil {
		return nil, err
	}
	if !n.rec.IsDir() {
		return nil, syscall.ENOTDIR
	}
	return n, nil
}

// dirent looks a name up; a zero Ino means it is not there. w.mu is held.
func (w *Workspace) dirent(parent Ino, key []byte) (metadata.Dirent, error) {
	v, err := w.get(key)
	if err != nil || v == nil {
		return metadata.Dirent{}, err
	}
	e, err := metadata.DecodeDirent(v)
	if err != nil {
		return e, w.localFault(fmt.Errorf("directory %d: %w", parent, err))
	}
	return e, nil
}

// child looks a name up and loads its inode; nil if it is not there. w.mu is held.
func (w *Workspace) child(parent Ino, key []byte) (*inode, error) {
	e, err := w.dirent(parent, key)
	if err != nil || e.Ino == 0 {
		return nil, err
	}
	n, err := w.inode(e.Ino)
	if errors.Is(err, syscall.ENOENT) {
		return nil, w.localFault(fmt.Errorf("directory %d: entry names inode %d: %w", parent, e.Ino, metadata.ErrDamaged))
	}
	return n, err
}

// localFault reports trouble with the local metadata once and turns it into EIO.
func (w *Workspace) localFault(err error) error {
	w.log.Error("local metadata", "err", err)
	return syscall.EIO
}

// storeFault turns trouble with the store into what a program understands: EIO; its own cancellation stays.
func (w *Workspace) storeFault(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return syscall.EINTR
	case errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	}
	w.log.Warn(what, "err", err)
	return syscall.EIO
}

// op gathers the mutations of one operation.
type op struct {
	w     *Workspace
	muts  []metadata.Mutation
	super bool
	clean bool
}

// begin starts an operation. w.mu is held until its commit.
func (w *Workspace) begin() op { return op{w: w, muts: make([]metadata.Mutation, 0, 6)} }

// save records an inode as it is now.
func (o *op) save(n *inode) {
	o.muts = append(o.muts, metadata.Mutation{Key: metadata.InodeKey(n.rec.Ino), Value: metadata.AppendInode(nil, &n.rec)})
	o.recount(n)
	if n.file != nil {
		n.file.unsaved = false
	}
}

// recount brings the superblock's and the dirty counters up to the inode's record.
func (o *op) recount(n *inode) {
	alloc, dirty, cached, link := n.savedAlloc, n.savedDirty, n.savedCopy, n.savedLink
	n.account()
	o.w.dirtyBytes.Add(n.savedDirty - dirty)
	o.w.cleanCopies.Add(n.savedCopy - cached)
	if alloc != n.savedAlloc || link != n.savedLink {
		o.super = true
		o.w.super.Bytes += uint64(n.savedAlloc - alloc)
		switch {
		case n.savedLink && !link:
			o.w.super.Inodes++
		case link && !n.savedLink:
			o.w.super.Inodes--
		}
	}
}

func (o *op) put(key, value []byte) {
	o.muts = append(o.muts, metadata.Mutation{Key: key, Value: value})
}
func (o *op) del(key []byte) { o.muts = append(o.muts, metadata.Mutation{Key: key}) }

// commit appends the operation to the journal.
func (o *op) commit() error {
	if o.super {
		o.put(metadata.SuperKey(), metadata.AppendSuper(nil, o.w.super))
	}
	var err error
	if o.clean {
		err = o.w.live.AppendClean(o.muts)
	} else {
		_, err = o.w.live.Append(o.muts)
		o.w.touch()
	}
	if err != nil {
		return o.w.localFault(err)
	}
	return nil
}

// touchTimes moves mtime and ctime of a directory whose entries changed, or ctime of any inode.
func (n *inode) changed(now int64)       { n.rec.Ctime = now }
func (n *inode) entryChanged(now int64)  { n.rec.Mtime, n.rec.Ctime = now, now }
func (w *Workspace) attr(n *inode) Attr  { return attrOf(&n.rec) }
func (w *Workspace) nextVersion() uint64 { w.version++; return w.version }

const dirSize = 4096

func attrOf(r *metadata.Inode) Attr {
	a := Attr{Ino: r.Ino, Mode: r.Mode, Nlink: r.Nlink, UID: r.UID, GID: r.GID, Rdev: r.Rdev, Size: r.Size,
		Blocks: (r.Alloc + 511) / 512, Atime: r.Atime, Mtime: r.Mtime, Ctime: r.Ctime, Btime: r.Btime}
	switch {
	case r.IsDir():
		a.Size, a.Blocks = dirSize, dirSize/512
	case r.IsSymlink():
		a.Blocks = 0
	}
	return a
}

package wsfs

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

// Unlink removes a name that is not a directory's.
func (w *Workspace) Unlink(ctx context.Context, parent Ino, name string) error {
	return w.remove(ctx, parent, name, false)
}

// Rmdir removes an empty directory.
func (w *Workspace) Rmdir(ctx context.Context, parent Ino, name string) error {
	switch name {
	case ".":
		return syscall.EINVAL
	case "..":
		return syscall.ENOTEMPTY
	}
	return w.remove(ctx, parent, name, true)
}

func (w *Workspace) remove(ctx context.Context, parent Ino, name string, wantDir bool) error {
	if err := w.writable(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return err
	}
	key := metadata.DirentKey(parent, name)
	return w.locked(ctx, func() error {
		dir, err := w.dir(parent)
		if err != nil {
			return err
		}
		n, err := w.child(parent, key)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case wantDir && !n.rec.IsDir():
			return syscall.ENOTDIR
		case !wantDir && n.rec.IsDir():
			return syscall.EISDIR
		case wantDir && n.rec.Entries > 0:
			return syscall.ENOTEMPTY
		}
		xattrs, err := w.xattrNames(n)
		if err != nil {
			return err
		}
		o := w.begin()
		w.dropEntry(&o, dir, key, n)
		w.unlinked(&o, n, xattrs)
		o.save(dir)
		w.notify(Event{Kind: EventRemove, Ino: n.rec.Ino, Parent: parent, Name: name})
		return o.commit()
	})
}

// unlinked takes one link off an inode whose entry is being dropped: the inode is saved, kept as an orphan, or deleted.
// xattrs are the names of its attributes, needed if it is deleted. w.mu is held.
func (w *Workspace) unlinked(o *op, n *inode, xattrs []string) {
	w.refresh(n)
	if n.rec.IsDir() {
		n.rec.Nlink = 0
	} else {
		n.rec.Nlink--
	}
	n.changed(w.now())
	switch {
	case n.rec.Nlink > 0:
		o.save(n)
	case n.file != nil || w.holds[n.rec.Ino] > 0:
		o.save(n)
		o.put(metadata.OrphanKey(n.rec.Ino), []byte{})
	default:
		w.deleteInode(o, n, xattrs)
	}
}

// deleteInode removes an inode without links or holders and everything that belongs to it. Extents in the committed
// tree go with the commit that drops the inode. w.mu is held.
func (w *Workspace) deleteInode(o *op, n *inode, xattrs []string) {
	ino := n.rec.Ino
	for _, name := range xattrs {
		o.del(metadata.XattrKey(ino, name))
	}
	o.recount(n)
	o.del(metadata.InodeKey(ino))
	if n.rec.Content == metadata.ContentJournal {
		o.del(metadata.ContentKey(ino))
	}
	if n.rec.Staging != 0 {
		o.del(metadata.StagingKey(n.rec.Staging))
		w.staging.doom(n.rec.Staging)
	}
	delete(w.inodes, ino)
}

// reap deletes an orphan when its last holder has gone. It is no error if it has links, holders, or is gone already.
func (w *Workspace) reap(ctx context.Context, ino Ino) error {
	return w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err == syscall.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		if n.rec.Nlink > 0 || n.file != nil || w.holds[ino] > 0 {
			return nil
		}
		xattrs, err := w.xattrNames(n)
		if err != nil {
			return err
		}
		o := w.begin()
		o.del(metadata.OrphanKey(ino))
		w.deleteInode(&o, n, xattrs)
		return o.commit()
	})
}

// Retain tells that a kernel was given n more references to an inode, one for each entry it got.
func (w *Workspace) Retain(ino Ino, n uint64) {
	w.mu.Lock()
	w.holds[ino] += n
	w.mu.Unlock()
}

// Forget gives n references back; the last one deletes an orphan.
func (w *Workspace) Forget(ino Ino, n uint64) {
	w.mu.Lock()
	left := w.holds[ino]
	if left <= n {
		delete(w.holds, ino)
	} else {
		w.holds[ino] = left - n
	}
	orphan := left <= n
	if orphan {
		cached := w.inodes[ino]
		orphan = cached == nil || cached.rec.Nlink == 0
		if cached == nil {
			_, known, err := w.live.GetLocal(metadata.OrphanKey(ino))
			orphan = known && err == nil
		}
	}
	w.mu.Unlock()
	if orphan && !w.readOnly {
		if err := w.reap(context.Background(), ino); err != nil {
			w.log.Warn("delete orphan", "ino", ino, "err", err)
		}
	}
}

// renameArgs are the names of a rename with their keys.
type renameArgs struct {
	parent, newParent Ino
	name, newName     string
	key, newKey       []byte
	flags             uint32
}

// Rename moves an entry. flags are those of renameat2(2): RENAME_NOREPLACE, RENAME_EXCHANGE.
func (w *Workspace) Rename(ctx context.Context, parent Ino, name string, newParent Ino, newName string, flags uint32) error {
	if err := w.writable(); err != nil {
		return err
	}
	for _, s := range [...]string{name, newName} {
		if err := checkName(s); err != nil {
			return err
		}
	}
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 || flags == unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE {
		return syscall.EINVAL
	}
	r := renameArgs{parent: parent, newParent: newParent, name: name, newName: newName, flags: flags,
		key: metadata.DirentKey(parent, name), newKey: metadata.DirentKey(newParent, newName)}
	return w.locked(ctx, func() error { return w.rename(&r) })
}

func (w *Workspace) rename(r *renameArgs) error {
	dir, err := w.dir(r.parent)
	if err != nil {
		return err
	}
	newDir, err := w.dir(r.newParent)
	if err != nil {
		return err
	}
	n, err := w.child(r.parent, r.key)
	if err != nil {
		return err
	}
	if n == nil {
		return syscall.ENOENT
	}
	old, err := w.child(r.newParent, r.newKey)
	if err != nil {
		return err
	}
	if done, err := w.checkRename(r, newDir, n, old); done || err != nil {
		return err
	}
	o := w.begin()
	if r.flags&unix.RENAME_EXCHANGE != 0 {
		w.exchange(&o, r, dir, newDir, n, old)
	} else {
		var xattrs []string
		if old != nil {
			if xattrs, err = w.xattrNames(old); err != nil {
				return err
			}
			w.dropEntry(&o, newDir, r.newKey, old)
			w.unlinked(&o, old, xattrs)
		}
		w.dropEntry(&o, dir, r.key, n)
		w.addEntry(&o, newDir, r.newKey, n)
		n.changed(w.now())
		o.save(n)
	}
	o.save(dir)
	if newDir != dir {
		o.save(newDir)
	}
	w.notify(Event{Kind: EventRename, Ino: n.rec.Ino, Parent: r.parent, Name: r.name, NewParent: r.newParent, NewName: r.newName})
	return o.commit()
}

// checkRename finds every reason to refuse; done means there is nothing to do.
func (w *Workspace) checkRename(r *renameArgs, newDir, n, old *inode) (done bool, err error) {
	exchange := r.flags&unix.RENAME_EXCHANGE != 0
	switch {
	case newDir.rec.Nlink == 0:
		return false, syscall.ENOENT
	case exchange && old == nil:
		return false, syscall.ENOENT
	case r.flags&unix.RENAME_NOREPLACE != 0 && old != nil:
		return false, syscall.EEXIST
	}
	if n.rec.IsDir() {
		if err := w.checkLoop(n.rec.Ino, r.newParent); err != nil {
			return false, err
		}
	}
	if exchange && old.rec.IsDir() {
		if err := w.checkLoop(old.rec.Ino, r.parent); err != nil {
			return false, err
		}
	}
	switch {
	case old == n:
		return true, nil // two names of one file, or the same name
	case old == nil || exchange:
		return false, nil
	case n.rec.IsDir() && !old.rec.IsDir():
		return false, syscall.ENOTDIR
	case !n.rec.IsDir() && old.rec.IsDir():
		return false, syscall.EISDIR
	case old.rec.IsDir() && old.rec.Entries > 0:
		return false, syscall.ENOTEMPTY
	}
	return false, nil
}

// checkLoop refuses to move a directory below itself.
func (w *Workspace) checkLoop(ino, into Ino) error {
	for p := into; ; {
		if p == ino {
			return syscall.EINVAL
		}
		if p == RootIno {
			return nil
		}
		d, err := w.inode(p)
		if err != nil {
			return err
		}
		p = d.rec.Parent
	}
}

func (w *Workspace) exchange(o *op, r *renameArgs, dir, newDir, n, old *inode) {
	now := w.now()
	o.put(r.key, metadata.AppendDirent(nil, metadata.Dirent{Ino: old.rec.Ino, Type: direntType(old.rec.Mode)}))
	o.put(r.newKey, metadata.AppendDirent(nil, metadata.Dirent{Ino: n.rec.Ino, Type: direntType(n.rec.Mode)}))
	move := func(n, from, to *inode) {
		if n.rec.IsDir() {
			from.rec.Nlink--
			to.rec.Nlink++
			n.rec.Parent = to.rec.Ino
		}
		n.changed(now)
		o.save(n)
	}
	move(n, dir, newDir)
	move(old, newDir, dir)
	dir.entryChanged(now)
	newDir.entryChanged(now)
}

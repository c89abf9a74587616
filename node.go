package wsfs

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/metadata"
)

// MaxName is the longest name of a directory entry, bytes.
const MaxName = 255

// maxLinks is the largest link count, as ext4's for files.
const maxLinks = 65000

func checkName(name string) error {
	switch {
	case len(name) > MaxName:
		return syscall.ENAMETOOLONG
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return syscall.EINVAL
	}
	return nil
}

// Lookup returns the attributes of a directory entry. "." and ".." work too.
func (w *Workspace) Lookup(ctx context.Context, parent Ino, name string) (Attr, error) {
	var a Attr
	if len(name) > MaxName {
		return a, syscall.ENAMETOOLONG
	}
	key := metadata.DirentKey(parent, name)
	err := w.locked(ctx, func() error {
		dir, err := w.dir(parent)
		if err != nil {
			return err
		}
		var n *inode
		switch name {
		case ".":
			n = dir
		case "..":
			n, err = w.inode(dir.rec.Parent)
		default:
			n, err = w.child(parent, key)
		}
		if err != nil {
			return err
		}
		if n == nil {
			return syscall.ENOENT
		}
		w.refresh(n)
		a = w.attr(n)
		return nil
	})
	return a, err
}

// GetAttr returns an inode's attributes; size and times of a file that a kernel writes by itself come from its
// staging file.
func (w *Workspace) GetAttr(ctx context.Context, ino Ino) (Attr, error) {
	var a Attr
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		w.refresh(n)
		a = w.attr(n)
		return nil
	})
	return a, err
}

// Readlink returns the target of a symlink; EINVAL for anything else.
func (w *Workspace) Readlink(ctx context.Context, ino Ino) (string, error) {
	var target string
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		if !n.rec.IsSymlink() {
			return syscall.EINVAL
		}
		target = string(n.rec.Inline)
		return nil
	})
	return target, err
}

// create makes an inode and its entry in one op; prepare may finish the record (symlink target, device number) and
// runs with w.mu held, after every check.
func (w *Workspace) create(ctx context.Context, parent Ino, name string, mode uint32, own Owner, prepare func(*inode)) (Attr, *inode, error) {
	if err := w.writable(); err != nil {
		return Attr{}, nil, err
	}
	if err := checkName(name); err != nil {
		return Attr{}, nil, err
	}
	if err := w.room(ctx); err != nil {
		return Attr{}, nil, err
	}
	var a Attr
	var n *inode
	key := metadata.DirentKey(parent, name)
	err := w.locked(ctx, func() error {
		dir, err := w.dir(parent)
		if err != nil {
			return err
		}
		if dir.rec.Nlink == 0 {
			return syscall.ENOENT // a removed directory that is still open
		}
		e, err := w.dirent(parent, key)
		if err != nil {
			return err
		}
		if e.Ino != 0 {
			return syscall.EEXIST
		}
		n = w.makeInode(dir, mode, own)
		if prepare != nil {
			prepare(n)
		}
		o := w.begin()
		w.addEntry(&o, dir, key, n)
		o.save(n)
		o.save(dir)
		a = w.attr(n)
		w.notify(Event{Kind: EventCreate, Ino: n.rec.Ino, Parent: parent, Name: name})
		return o.commit()
	})
	return a, n, err
}

// makeInode makes a fresh inode below dir and caches it; nothing is recorded yet. w.mu is held.
func (w *Workspace) makeInode(dir *inode, mode uint32, own Owner) *inode {
	now := w.now()
	ino := w.super.NextIno
	w.super.NextIno++
	rec := metadata.Inode{Ino: ino, Mode: mode, UID: own.UID, GID: own.GID, Nlink: 1,
		Atime: now, Mtime: now, Ctime: now, Btime: now}
	if dir.rec.Mode&syscall.S_ISGID != 0 {
		rec.GID = dir.rec.GID
		if mode&syscall.S_IFMT == syscall.S_IFDIR {
			rec.Mode |= syscall.S_ISGID
		}
	}
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		rec.Nlink, rec.Parent = 2, dir.rec.Ino
	}
	n := &inode{rec: rec} // accounted for by its first save
	w.keep(n)
	return n
}

// addEntry links n into dir; the caller saves both.
func (w *Workspace) addEntry(o *op, dir *inode, key []byte, n *inode) {
	o.put(key, metadata.AppendDirent(nil, metadata.Dirent{Ino: n.rec.Ino, Type: direntType(n.rec.Mode)}))
	dir.rec.Entries++
	if n.rec.IsDir() {
		dir.rec.Nlink++
		n.rec.Parent = dir.rec.Ino
	}
	dir.entryChanged(w.now())
}

// dropEntry unlinks n from dir; the caller saves both.
func (w *Workspace) dropEntry(o *op, dir *inode, key []byte, n *inode) {
	o.del(key)
	dir.rec.Entries--
	if n.rec.IsDir() {
		dir.rec.Nlink--
	}
	dir.entryChanged(w.now())
}

func direntType(mode uint32) uint8 { return uint8((mode & syscall.S_IFMT) >> 12) }

// Mkdir makes a directory. mode holds permission bits, the umask already applied.
func (w *Workspace) Mkdir(ctx context.Context, parent Ino, name string, mode uint32, own Owner) (Attr, error) {
	a, _, err := w.create(ctx, parent, name, mode&07777|syscall.S_IFDIR, own, nil)
	return a, err
}

// Mknod makes a file, fifo, socket or device node; mode holds type and permission bits.
func (w *Workspace) Mknod(ctx context.Context, parent Ino, name string, mode, rdev uint32, own Owner) (Attr, error) {
	switch mode & syscall.S_IFMT {
	case 0:
		mode |= syscall.S_IFREG
	case syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK, syscall.S_IFCHR, syscall.S_IFBLK:
	default:
		return Attr{}, syscall.EINVAL
	}
	a, _, err := w.create(ctx, parent, name, mode, own, func(n *inode) {
		if t := mode & syscall.S_IFMT; t == syscall.S_IFCHR || t == syscall.S_IFBLK {
			n.rec.Rdev = rdev
		}
	})
	return a, err
}

// maxSymlink is the longest symlink target, bytes.
const maxSymlink = 4095

// Symlink makes a symbolic link.
func (w *Workspace) Symlink(ctx context.Context, parent Ino, name, target string, own Owner) (Attr, error) {
	if target == "" {
		return Attr{}, syscall.ENOENT
	}
	if len(target) > maxSymlink {
		return Attr{}, syscall.ENAMETOOLONG
	}
	a, _, err := w.create(ctx, parent, name, 0777|syscall.S_IFLNK, own, func(n *inode) {
		n.rec.Content, n.rec.Inline, n.rec.Size = metadata.ContentInline, []byte(target), int64(len(target))
		n.rec.Alloc = n.rec.Size
	})
	return a, err
}

// Link makes another name for a file. It also gives a name to a file made by Tmpfile.
func (w *Workspace) Link(ctx context.Context, ino, parent Ino, name string) (Attr, error) {
	var a Attr
	if err := w.writable(); err != nil {
		return a, err
	}
	if err := checkName(name); err != nil {
		return a, err
	}
	key := metadata.DirentKey(parent, name)
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		dir, err := w.dir(parent)
		if err != nil {
			return err
		}
		e, err := w.dirent(parent, key)
		switch {
		case err != nil:
			return err
		case e.Ino != 0:
			return syscall.EEXIST
		case n.rec.IsDir():
			return syscall.EPERM
		case n.rec.Nlink >= maxLinks:
			return syscall.EMLINK
		case dir.rec.Nlink == 0, n.rec.Nlink == 0 && (n.file == nil || !n.file.linkable):
			return syscall.ENOENT
		}
		o := w.begin()
		w.refresh(n)
		if n.rec.Nlink == 0 {
			if err := w.adoptOrphan(&o, n); err != nil {
				return err
			}
		}
		n.rec.Nlink++
		n.changed(w.now())
		w.addEntry(&o, dir, key, n)
		o.save(n)
		o.save(dir)
		a = w.attr(n)
		w.notify(Event{Kind: EventCreate, Ino: ino, Parent: parent, Name: name})
		return o.commit()
	})
	return a, err
}

// adoptOrphan makes a file without links one that commits must store: they have passed over it and its attributes.
func (w *Workspace) adoptOrphan(o *op, n *inode) error {
	names, err := w.xattrNames(n)
	if err != nil {
		return err
	}
	for _, name := range names {
		key := metadata.XattrKey(n.rec.Ino, name)
		v, err := w.get(key)
		if err != nil {
			return err
		}
		o.put(key, append([]byte{}, v...))
	}
	o.del(metadata.OrphanKey(n.rec.Ino))
	return nil
}

// ReadDir calls fn for the entries of a directory after a cookie (0: from the start) until it returns false. Cookies
// stay valid while entries come and go: the order is that of the names' hashes. fn runs without locks.
func (w *Workspace) ReadDir(ctx context.Context, ino Ino, cookie uint64, fn func(DirEntry) bool) error {
	var parent Ino
	err := w.locked(ctx, func() error {
		n, err := w.dir(ino)
		if err == nil {
			parent = n.rec.Parent
		}
		return err
	})
	if err != nil {
		return err
	}
	if cookie < 1 && !fn(DirEntry{Name: ".", Ino: ino, Type: syscall.DT_DIR, Cookie: 1}) {
		return nil
	}
	if cookie < 2 && !fn(DirEntry{Name: "..", Ino: parent, Type: syscall.DT_DIR, Cookie: 2}) {
		return nil
	}
	from := metadata.DirentFrom(ino, max(cookie+1, 3))
	err = w.live.Scan(ctx, from, metadata.PrefixEnd(metadata.DirentPrefix(ino)), func(key, value []byte) error {
		_, hash, name, err := metadata.ParseDirentKey(key)
		if err != nil {
			return err
		}
		e, err := metadata.DecodeDirent(value)
		if err != nil {
			return err
		}
		if !fn(DirEntry{Name: name, Ino: e.Ino, Type: e.Type, Cookie: hash}) {
			return metadata.ErrStop
		}
		return nil
	})
	if errors.Is(err, metadata.ErrRecord) {
		return w.localFault(err)
	}
	return w.storeFault("list directory", err)
}

// SetAttr changes attributes of an inode; see SetMask.
func (w *Workspace) SetAttr(ctx context.Context, ino Ino, s SetAttr) (Attr, error) {
	if err := w.writable(); err != nil {
		return Attr{}, err
	}
	if s.Mask&SetSize != 0 {
		if err := w.truncate(ctx, ino, s.Size); err != nil {
			return Attr{}, err
		}
		if s.Mask&^SetSize == 0 {
			return w.GetAttr(ctx, ino)
		}
	}
	var a Attr
	err := w.locked(ctx, func() error {
		n, err := w.inode(ino)
		if err != nil {
			return err
		}
		w.refresh(n)
		now := w.now()
		w.setFields(n, &s, now)
		if n.file != nil && s.Mask&(SetMtime|SetMtimeNow) != 0 {
			n.file.stampTimes()
		}
		o := w.begin()
		o.save(n)
		a = w.attr(n)
		w.notify(Event{Kind: EventAttr, Ino: ino})
		return o.commit()
	})
	return a, err
}

func (w *Workspace) setFields(n *inode, s *SetAttr, now int64) {
	r := &n.rec
	if s.Mask&SetMode != 0 {
		r.Mode = r.Mode&syscall.S_IFMT | s.Mode&07777
	}
	if s.Mask&SetUID != 0 {
		r.UID = s.UID
	}
	if s.Mask&SetGID != 0 {
		r.GID = s.GID
	}
	if s.Mask&SetKillPriv != 0 {
		killPriv(r)
	}
	switch {
	case s.Mask&SetAtimeNow != 0:
		r.Atime = now
	case s.Mask&SetAtime != 0:
		r.Atime = s.Atime
	}
	switch {
	case s.Mask&SetMtimeNow != 0:
		r.Mtime = now
	case s.Mask&SetMtime != 0:
		r.Mtime = s.Mtime
	}
	r.Ctime = now
	if s.Mask&SetCtime != 0 {
		r.Ctime = s.Ctime
	}
}

// killPriv clears what a write by an unprivileged process clears: set-user-ID, and set-group-ID of an executable.
func killPriv(r *metadata.Inode) {
	r.Mode &^= syscall.S_ISUID
	if r.Mode&unix.S_IXGRP != 0 {
		r.Mode &^= syscall.S_ISGID
	}
}

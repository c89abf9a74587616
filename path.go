package wsfs

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// maxFollow is how many symlinks a path may lead through, as in the kernel.
const maxFollow = 40

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// walker resolves a path from the root; symlinks stay inside the workspace: an absolute target starts at its root.
type walker struct {
	w       *Workspace
	ctx     context.Context
	follows int
}

// resolve walks to the last component. It returns its directory, its name ("" for the root itself) and its attributes;
// exists is false where only the last component is missing. follow says what to do with a symlink there.
func (w *Workspace) resolve(ctx context.Context, name string, follow bool) (dir Ino, last string, a Attr, exists bool, err error) {
	if strings.Contains(name, "\x00") {
		return 0, "", a, false, syscall.EINVAL
	}
	wk := &walker{w: w, ctx: ctx}
	return wk.walk(RootIno, strings.Split(name, "/"), follow || strings.HasSuffix(name, "/"))
}

func (wk *walker) walk(dir Ino, parts []string, follow bool) (Ino, string, Attr, bool, error) {
	a, err := wk.w.GetAttr(wk.ctx, dir)
	if err != nil {
		return 0, "", a, false, err
	}
	last := ""
	for i, part := range parts {
		if part == "" || part == "." {
			continue
		}
		rest := nonEmpty(parts[i+1:])
		if !a.IsDir() {
			return 0, "", a, false, syscall.ENOTDIR
		}
		dir = a.Ino
		next, err := wk.w.Lookup(wk.ctx, dir, part)
		if errors.Is(err, syscall.ENOENT) && len(rest) == 0 {
			return dir, part, Attr{}, false, nil
		}
		if err != nil {
			return 0, "", a, false, err
		}
		if next.IsSymlink() && (follow || len(rest) > 0) {
			return wk.through(dir, next.Ino, rest, follow)
		}
		a, last = next, part
		if part == ".." {
			last = ""
		}
	}
	return dir, last, a, true, nil
}

// through goes on through a symlink found in dir.
func (wk *walker) through(dir, link Ino, rest []string, follow bool) (Ino, string, Attr, bool, error) {
	if wk.follows++; wk.follows > maxFollow {
		return 0, "", Attr{}, false, syscall.ELOOP
	}
	target, err := wk.w.Readlink(wk.ctx, link)
	if err != nil {
		return 0, "", Attr{}, false, err
	}
	if strings.HasPrefix(target, "/") {
		dir = RootIno
	}
	return wk.walk(dir, append(strings.Split(target, "/"), rest...), follow)
}

func nonEmpty(parts []string) []string {
	var out []string
	for _, p := range parts {
		if p != "" && p != "." {
			out = append(out, p)
		}
	}
	return out
}

// found is resolve for something that must exist.
func (w *Workspace) found(ctx context.Context, name string, follow bool) (dir Ino, last string, a Attr, err error) {
	dir, last, a, exists, err := w.resolve(ctx, name, follow)
	if err == nil && !exists {
		err = syscall.ENOENT
	}
	return dir, last, a, err
}

// free is resolve for something that must not exist yet.
func (w *Workspace) free(ctx context.Context, name string) (dir Ino, last string, err error) {
	dir, last, _, exists, err := w.resolve(ctx, name, false)
	if err == nil && exists {
		err = syscall.EEXIST
	}
	return dir, last, err
}

// Stat returns a path's attributes, following symlinks.
func (w *Workspace) Stat(ctx context.Context, name string) (Attr, error) {
	_, _, a, err := w.found(ctx, name, true)
	return a, pathError("stat", name, err)
}

// Lstat is Stat of a symlink itself.
func (w *Workspace) Lstat(ctx context.Context, name string) (Attr, error) {
	_, _, a, err := w.found(ctx, name, false)
	return a, pathError("lstat", name, err)
}

// MkdirPath makes one directory.
func (w *Workspace) MkdirPath(ctx context.Context, name string, mode uint32) error {
	dir, last, err := w.free(ctx, name)
	if err == nil {
		_, err = w.Mkdir(ctx, dir, last, mode, w.owner())
		w.entryChanged(err, dir, last)
	}
	return pathError("mkdir", name, err)
}

// MkdirAll makes a directory and every missing one above it.
func (w *Workspace) MkdirAll(ctx context.Context, name string, mode uint32) error {
	a, err := w.Stat(ctx, name)
	if err == nil {
		if a.IsDir() {
			return nil
		}
		return pathError("mkdir", name, syscall.ENOTDIR)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if up := path.Dir(path.Clean("/" + name)); up != "/" {
		if err := w.MkdirAll(ctx, up, mode); err != nil {
			return err
		}
	}
	if err := w.MkdirPath(ctx, path.Clean("/"+name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// SymlinkPath makes a symlink at name that leads to target.
func (w *Workspace) SymlinkPath(ctx context.Context, target, name string) error {
	dir, last, err := w.free(ctx, name)
	if err == nil {
		_, err = w.Symlink(ctx, dir, last, target, w.owner())
		w.entryChanged(err, dir, last)
	}
	return pathError("symlink", name, err)
}

// MknodPath makes a fifo, socket or device node.
func (w *Workspace) MknodPath(ctx context.Context, name string, mode, rdev uint32) error {
	dir, last, err := w.free(ctx, name)
	if err == nil {
		_, err = w.Mknod(ctx, dir, last, mode, rdev, w.owner())
		w.entryChanged(err, dir, last)
	}
	return pathError("mknod", name, err)
}

// LinkPath makes another name for a file; a symlink itself gets the name.
func (w *Workspace) LinkPath(ctx context.Context, old, name string) error {
	_, _, a, err := w.found(ctx, old, false)
	if err != nil {
		return pathError("link", old, err)
	}
	dir, last, err := w.free(ctx, name)
	if err == nil {
		_, err = w.Link(ctx, a.Ino, dir, last)
		w.entryChanged(err, dir, last)
		w.inodeChanged(err, a.Ino)
	}
	return pathError("link", name, err)
}

// ReadlinkPath returns a symlink's target.
func (w *Workspace) ReadlinkPath(ctx context.Context, name string) (string, error) {
	_, _, a, err := w.found(ctx, name, false)
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	target, err := w.Readlink(ctx, a.Ino)
	return target, pathError("readlink", name, err)
}

// Remove removes a file or an empty directory.
func (w *Workspace) Remove(ctx context.Context, name string) error {
	dir, last, a, err := w.found(ctx, name, false)
	if err == nil {
		err = w.removeEntry(ctx, dir, last, a)
	}
	return pathError("remove", name, err)
}

func (w *Workspace) removeEntry(ctx context.Context, dir Ino, last string, a Attr) error {
	if last == "" {
		return syscall.EBUSY // the root, or a path that ends in ".."
	}
	var err error
	if a.IsDir() {
		err = w.Rmdir(ctx, dir, last)
	} else {
		err = w.Unlink(ctx, dir, last)
	}
	w.entryChanged(err, dir, last)
	w.inodeChanged(err, a.Ino)
	return err
}

// RemoveAll removes a path and everything below it; a path that is not there is no error.
func (w *Workspace) RemoveAll(ctx context.Context, name string) error {
	dir, last, a, exists, err := w.resolve(ctx, name, false)
	if err != nil || !exists {
		if errors.Is(err, syscall.ENOENT) {
			err = nil
		}
		return pathError("remove", name, err)
	}
	return pathError("remove", name, w.removeTree(ctx, dir, last, a))
}

func (w *Workspace) removeTree(ctx context.Context, dir Ino, last string, a Attr) error {
	if last == "" {
		return syscall.EBUSY
	}
	if a.IsDir() {
		entries, err := w.list(ctx, a.Ino)
		if err != nil {
			return err
		}
		for _, e := range entries {
			child, err := w.Lookup(ctx, a.Ino, e.Name)
			if errors.Is(err, syscall.ENOENT) {
				continue
			}
			if err != nil {
				return err
			}
			if err := w.removeTree(ctx, a.Ino, e.Name, child); err != nil {
				return err
			}
		}
	}
	err := w.removeEntry(ctx, dir, last, a)
	if errors.Is(err, syscall.ENOENT) {
		err = nil
	}
	return err
}

// list returns a directory's entries without "." and "..".
func (w *Workspace) list(ctx context.Context, ino Ino) ([]DirEntry, error) {
	var out []DirEntry
	err := w.ReadDir(ctx, ino, 2, func(e DirEntry) bool {
		out = append(out, e)
		return true
	})
	return out, err
}

// RenamePath moves old to name, replacing what is there as rename(2) does.
func (w *Workspace) RenamePath(ctx context.Context, old, name string) error {
	dir, last, a, err := w.found(ctx, old, false)
	if err != nil {
		return pathError("rename", old, err)
	}
	newDir, newLast, _, _, err := w.resolve(ctx, name, false)
	if err == nil {
		if last == "" || newLast == "" {
			err = syscall.EBUSY
		} else {
			err = w.Rename(ctx, dir, last, newDir, newLast, 0)
		}
		w.entryChanged(err, dir, last)
		w.entryChanged(err, newDir, newLast)
		w.inodeChanged(err, a.Ino)
	}
	return pathError("rename", name, err)
}

// change applies a SetAttr to a path.
func (w *Workspace) change(ctx context.Context, op, name string, follow bool, s SetAttr) error {
	_, _, a, err := w.found(ctx, name, follow)
	if err == nil {
		_, err = w.SetAttr(ctx, a.Ino, s)
		w.inodeChanged(err, a.Ino)
	}
	return pathError(op, name, err)
}

// Chmod sets permission bits.
func (w *Workspace) Chmod(ctx context.Context, name string, mode uint32) error {
	return w.change(ctx, "chmod", name, true, SetAttr{Mask: SetMode, Mode: mode})
}

// Lchown sets the owner, of a symlink itself.
func (w *Workspace) Lchown(ctx context.Context, name string, uid, gid uint32) error {
	return w.change(ctx, "chown", name, false, SetAttr{Mask: SetUID | SetGID, UID: uid, GID: gid})
}

// Lchtimes sets access and modification times (ns since 1970), of a symlink itself.
func (w *Workspace) Lchtimes(ctx context.Context, name string, atime, mtime int64) error {
	return w.change(ctx, "chtimes", name, false, SetAttr{Mask: SetAtime | SetMtime, Atime: atime, Mtime: mtime})
}

// Truncate sets a file's size.
func (w *Workspace) Truncate(ctx context.Context, name string, size int64) error {
	return w.change(ctx, "truncate", name, true, SetAttr{Mask: SetSize, Size: size})
}

// ReadDirPath lists a directory, in the order of the directory.
func (w *Workspace) ReadDirPath(ctx context.Context, name string) ([]DirEntry, error) {
	_, _, a, err := w.found(ctx, name, true)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	out, err := w.list(ctx, a.Ino)
	return out, pathError("readdir", name, err)
}

// Xattrs returns all extended attributes of a path (of a symlink itself).
func (w *Workspace) Xattrs(ctx context.Context, name string) (map[string][]byte, error) {
	_, _, a, err := w.found(ctx, name, false)
	if err != nil {
		return nil, pathError("listxattr", name, err)
	}
	names, err := w.ListXattr(ctx, a.Ino)
	out := make(map[string][]byte, len(names))
	for _, n := range names {
		v, gerr := w.GetXattr(ctx, a.Ino, n)
		if errors.Is(gerr, syscall.ENODATA) {
			continue
		}
		if gerr != nil {
			err = gerr
			break
		}
		out[n] = v
	}
	return out, pathError("listxattr", name, err)
}

// SetXattrPath sets one extended attribute of a path (of a symlink itself).
func (w *Workspace) SetXattrPath(ctx context.Context, name, attr string, value []byte) error {
	_, _, a, err := w.found(ctx, name, false)
	if err == nil {
		err = w.SetXattr(ctx, a.Ino, attr, value, 0)
		w.inodeChanged(err, a.Ino)
	}
	return pathError("setxattr", name, err)
}

// owner is who new inodes made by path-level operations belong to.
func (w *Workspace) owner() Owner {
	return Owner{UID: uint32(syscall.Getuid()), GID: uint32(syscall.Getgid())}
}

// Invalidate makes a kernel that has the workspace mounted forget what it knows of a path: its name (or its absence), its
// attributes and content, its directory's listing. Inode-level operations that a front end other than the kernel makes
// need it.
func (w *Workspace) Invalidate(ctx context.Context, name string) error {
	if w.kernel.Load() == nil {
		return nil
	}
	dir, last, a, err := w.found(ctx, name, false)
	if err != nil {
		return pathError("invalidate", name, err)
	}
	if last != "" {
		w.entryChanged(nil, dir, last)
	}
	w.inodeChanged(nil, a.Ino)
	return nil
}

// entryChanged tells the kernel that an entry is not what it was.
func (w *Workspace) entryChanged(err error, dir Ino, name string) {
	if k := w.kernel.Load(); k != nil && err == nil {
		(*k).InvalidateEntry(dir, name)
		(*k).InvalidateInode(dir, 0, 0)
	}
}

// inodeChanged tells the kernel that attributes or content are not what they were.
func (w *Workspace) inodeChanged(err error, ino Ino) {
	if k := w.kernel.Load(); k != nil && err == nil {
		(*k).InvalidateInode(ino, 0, 0)
	}
}

// findPath finds one path of an inode. A directory's is found by its parents; a file's by looking through all
// directories.
func (w *Workspace) findPath(ctx context.Context, ino Ino) (string, error) {
	return w.searchPath(ctx, RootIno, "", ino)
}

func (w *Workspace) searchPath(ctx context.Context, dir Ino, prefix string, ino Ino) (string, error) {
	entries, err := w.list(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Ino == ino {
			return prefix + "/" + e.Name, nil
		}
	}
	for _, e := range entries {
		if e.Type != syscall.DT_DIR {
			continue
		}
		p, err := w.searchPath(ctx, e.Ino, prefix+"/"+e.Name, ino)
		if err == nil || !errors.Is(err, syscall.ENOENT) {
			return p, err
		}
	}
	return "", syscall.ENOENT
}

package api

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"strings"
	"syscall"

	"wsfs"
)

// sink writes nodes below one path of the workspace, in the order a tree stream has them. A regular file is complete
// or absent: a new name is removed again when its content breaks off, an existing one is replaced by a rename at the
// end. Attributes of a directory are set when the stream has left it, so that filling it does not move them.
type sink struct {
	s    *server
	root string    // the path that "" means
	dirs []openDir // from the root of the sink down to the directory written last
	top  wsfs.Ino  // the directory holding root's last name
	last string    // root's last name, "" for the workspace's root
}

// openDir is a directory on the way to the node written last.
type openDir struct {
	name string
	ino  wsfs.Ino
	path string
	node *Node // attributes to set when it is left; nil where the stream did not bring any
}

// writeContent fills a new file and returns its size in bytes.
type writeContent func(ctx context.Context, h *wsfs.Handle) (int64, error)

func (s *server) newSink(ctx context.Context, root string) (*sink, error) {
	t := &sink{s: s, root: root}
	if root == "/" {
		return t, nil
	}
	var err error
	t.top, t.last, err = s.parent(ctx, "put", root)
	return t, err
}

// put writes one node; content is called for a regular file that was created.
func (t *sink) put(ctx context.Context, n *Node, content writeContent) error {
	p := path.Join(t.root, string(n.Path))
	parent, name, err := t.place(ctx, string(n.Path))
	if err == nil {
		err = t.make(ctx, parent, name, n, content)
	}
	if err == nil {
		err = t.s.w.Invalidate(ctx, p)
	}
	return pathError("put", p, err)
}

// place returns the directory a node goes to and its name there. The workspace's root is (RootIno, ".").
func (t *sink) place(ctx context.Context, rel string) (wsfs.Ino, string, error) {
	if rel == "" {
		if err := t.leave(ctx, 0); err != nil {
			return 0, "", err
		}
		if t.last == "" {
			return wsfs.RootIno, ".", nil
		}
		return t.top, t.last, nil
	}
	parts := strings.Split(rel, "/")
	parts, name := parts[:len(parts)-1], parts[len(parts)-1]
	if err := t.enterRoot(ctx); err != nil {
		return 0, "", err
	}
	keep := 0
	for keep < len(parts) && keep+1 < len(t.dirs) && t.dirs[keep+1].name == parts[keep] {
		keep++
	}
	if err := t.leave(ctx, keep+1); err != nil {
		return 0, "", err
	}
	for _, part := range parts[keep:] {
		a, err := t.s.w.Lookup(ctx, t.dirs[len(t.dirs)-1].ino, part)
		if err != nil {
			return 0, "", err
		}
		if !a.IsDir() {
			return 0, "", syscall.ENOTDIR
		}
		t.dirs = append(t.dirs, openDir{name: part, ino: a.Ino, path: path.Join(t.dirs[len(t.dirs)-1].path, part)})
	}
	return t.dirs[len(t.dirs)-1].ino, name, nil
}

// enterRoot resolves the sink's own directory, following a link there.
func (t *sink) enterRoot(ctx context.Context) error {
	if len(t.dirs) > 0 {
		return nil
	}
	a, err := t.s.w.Stat(ctx, t.root)
	if err != nil {
		return err
	}
	if !a.IsDir() {
		return syscall.ENOTDIR
	}
	t.dirs = append(t.dirs, openDir{ino: a.Ino, path: t.root})
	return nil
}

// leave closes all but the first keep directories, deepest first, and sets their attributes.
func (t *sink) leave(ctx context.Context, keep int) error {
	for len(t.dirs) > keep {
		d := t.dirs[len(t.dirs)-1]
		t.dirs = t.dirs[:len(t.dirs)-1]
		if d.node == nil {
			continue
		}
		if err := t.attributes(ctx, d.ino, d.node); err != nil {
			return err
		}
		if err := t.s.w.Invalidate(ctx, d.path); err != nil {
			return err
		}
	}
	return nil
}

// close sets what is still to be set.
func (t *sink) close(ctx context.Context) error {
	return pathError("put", t.root, t.leave(ctx, 0))
}

// abandon forgets the directories left open: what was written stays.
func (t *sink) abandon() { t.dirs = nil }

func (t *sink) make(ctx context.Context, parent wsfs.Ino, name string, n *Node, content writeContent) error {
	if n.Type == TypeDir {
		return t.directory(ctx, parent, name, n)
	}
	if name == "." {
		return syscall.EISDIR
	}
	old, err := t.s.w.Lookup(ctx, parent, name)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return t.create(ctx, parent, name, n, content)
	case err != nil:
		return err
	case old.IsDir():
		return syscall.EISDIR
	}
	// Replace: make it under a name of its own and rename it over the old one.
	tmp := ".wsfs-put-" + rand.Text()
	if err := t.create(ctx, parent, tmp, n, content); err != nil {
		return err
	}
	if err := t.s.w.Rename(ctx, parent, tmp, parent, name, 0); err != nil {
		return errors.Join(err, t.s.w.Unlink(ctx, parent, tmp))
	}
	// A rename of two links to one inode does nothing, by POSIX: then the old name is right already.
	if err := t.s.w.Unlink(ctx, parent, tmp); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}

// directory makes a directory or takes the one that is there, and stays in it.
func (t *sink) directory(ctx context.Context, parent wsfs.Ino, name string, n *Node) error {
	a, err := t.s.w.Lookup(ctx, parent, name)
	if errors.Is(err, syscall.ENOENT) {
		a, err = t.s.w.Mkdir(ctx, parent, name, n.Mode&07777, wsfs.Owner{UID: n.UID, GID: n.GID})
	}
	if err != nil {
		return err
	}
	if a.IsSymlink() && len(n.Path) == 0 {
		a, err = t.s.w.Stat(ctx, t.root)
		if err != nil {
			return err
		}
	}
	if !a.IsDir() {
		return syscall.ENOTDIR
	}
	if len(n.Path) == 0 {
		name = ""
	}
	t.dirs = append(t.dirs, openDir{name: name, ino: a.Ino, path: path.Join(t.root, string(n.Path)), node: n})
	return nil
}

// create makes a node that is not a directory under a name that is free.
func (t *sink) create(ctx context.Context, parent wsfs.Ino, name string, n *Node, content writeContent) error {
	own := wsfs.Owner{UID: n.UID, GID: n.GID}
	var a wsfs.Attr
	var err error
	switch n.Type {
	case TypeFile:
		return t.file(ctx, parent, name, n, own, content)
	case TypeLink:
		return t.link(ctx, parent, name, n)
	case TypeSymlink:
		a, err = t.s.w.Symlink(ctx, parent, name, string(n.Target), own)
	default:
		a, err = t.s.w.Mknod(ctx, parent, name, typeBits(n.Type)|n.Mode&07777, n.Rdev, own)
	}
	if err != nil {
		return err
	}
	return t.attributes(ctx, a.Ino, n)
}

func (t *sink) file(ctx context.Context, parent wsfs.Ino, name string, n *Node, own wsfs.Owner, content writeContent) error {
	a, h, err := t.s.w.Create(ctx, parent, name, n.Mode&07777, own, wsfs.OpenOptions{Write: true, Excl: true})
	if err != nil {
		return err
	}
	size, err := content(ctx, h)
	if err == nil {
		// Also where the size is right already: the attributes are one op either way.
		err = t.setAttr(ctx, a.Ino, n, wsfs.SetSize, size)
	}
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		p := path.Join(t.root, path.Dir(string(n.Path)), name)
		if len(n.Path) == 0 {
			p = path.Join(path.Dir(t.root), name)
		}
		return errors.Join(err, t.s.w.Remove(context.WithoutCancel(ctx), p))
	}
	return nil
}

// link makes another name of a node the stream has brought before.
func (t *sink) link(ctx context.Context, parent wsfs.Ino, name string, n *Node) error {
	first, err := t.s.w.Lstat(ctx, path.Join(t.root, string(n.Link)))
	if err != nil {
		return err
	}
	_, err = t.s.w.Link(ctx, first.Ino, parent, name)
	return err
}

func (t *sink) attributes(ctx context.Context, ino wsfs.Ino, n *Node) error {
	return t.setAttr(ctx, ino, n, 0, 0)
}

// setAttr makes the attributes of ino those of n. Owner first: changing it clears set-user-ID.
func (t *sink) setAttr(ctx context.Context, ino wsfs.Ino, n *Node, mask wsfs.SetMask, size int64) error {
	for _, x := range n.Xattrs {
		if err := t.s.w.SetXattr(ctx, ino, string(x.Name), x.Value, 0); err != nil {
			return err
		}
	}
	mask |= wsfs.SetUID | wsfs.SetGID | wsfs.SetMtime | wsfs.SetAtime
	if n.Type != TypeSymlink {
		mask |= wsfs.SetMode
	}
	set := wsfs.SetAttr{Mask: mask, Mode: n.Mode & 07777, UID: n.UID, GID: n.GID, Size: size, Mtime: n.Mtime, Atime: n.Atime}
	if set.Atime == 0 {
		set.Atime = n.Mtime
	}
	_, err := t.s.w.SetAttr(ctx, ino, set)
	return err
}

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"wsfs/api"
	"wsfs/internal/cli"
)

// treeTarget writes a tree stream to this host. Below the target, every component is opened without following links,
// so a stream (or somebody who changes the tree meanwhile) cannot lead a write out of it. A directory's attributes are
// set when the stream has left it: until then it can be written to, and filling it does not move its times.
type treeTarget struct {
	in     *api.TreeReader
	bar    *cli.Progress
	parent int    // directory that holds the target
	name   string // the target's name there
	dirs   []localDir
	root   bool // we may set owners and make devices
	failed int
}

// localDir is an open directory on the way to the node written last.
type localDir struct {
	name string
	fd   int
	node *api.Node // attributes to set when it is left; nil where the stream did not bring any
}

// receiveTree writes all of a stream as target and returns how many nodes failed.
func receiveTree(r io.Reader, target string, bar *cli.Progress) (api.Totals, int, error) {
	in, err := api.NewTreeReader(r)
	if err != nil {
		return api.Totals{}, 0, err
	}
	abs, err := filepath.Abs(target)
	if err != nil {
		return api.Totals{}, 0, err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		if fi, err := os.Stat(real); err == nil && fi.IsDir() {
			abs = real // the target itself may be a link to a directory; what is below it may not
		}
	}
	parent, err := unix.Open(filepath.Dir(abs), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return api.Totals{}, 0, fmt.Errorf("%s: %w", filepath.Dir(abs), err)
	}
	defer unix.Close(parent)
	t := &treeTarget{in: in, bar: bar, parent: parent, name: filepath.Base(abs), root: os.Geteuid() == 0}
	if abs == "/" {
		t.name = "."
	}
	err = t.all()
	if lerr := t.leave(0); err == nil {
		err = lerr
	}
	totals := in.Totals()
	for _, e := range totals.Errors {
		fmt.Fprintf(os.Stderr, "wsctl: get: %s\n", cli.Printable(e.Message))
	}
	return totals, t.failed + len(totals.Errors), err
}

func (t *treeTarget) all() error {
	for {
		n, err := t.in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.put(n); err != nil {
			err = fmt.Errorf("get %s: %w", n.Path, err)
			if fatal(err) {
				return err
			}
			t.failed++
			fmt.Fprintf(os.Stderr, "wsctl: %s\n", cli.Printable(err.Error()))
		}
		totals := t.in.Totals()
		t.bar.Bytes(totals.Nodes, totals.Bytes, 0)
	}
}

// fatal tells the errors after which going on makes no sense.
func fatal(err error) bool {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, api.ErrStream} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// put writes one node.
func (t *treeTarget) put(n *api.Node) error {
	dir, name, err := t.place(string(n.Path))
	if err != nil {
		return err
	}
	if n.Type == api.TypeDir {
		return t.directory(dir, name, n)
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return t.create(dir, name, n)
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	}
	tmp := ".wsctl-get-" + rand.Text()
	if err := t.create(dir, tmp, n); err != nil {
		return err
	}
	if err := unix.Renameat(dir, tmp, dir, name); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, tmp, 0))
	}
	// A rename between two links of one inode does nothing: then tmp is still there.
	if err := unix.Unlinkat(dir, tmp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// place opens the directory a node goes to.
func (t *treeTarget) place(rel string) (int, string, error) {
	if rel == "" {
		return t.parent, t.name, t.leave(0)
	}
	parts := strings.Split(rel, "/")
	parts, name := parts[:len(parts)-1], parts[len(parts)-1]
	if len(t.dirs) == 0 {
		fd, err := openDirAt(t.parent, t.name)
		if err != nil {
			return 0, "", err
		}
		t.dirs = append(t.dirs, localDir{fd: fd})
	}
	keep := 0
	for keep < len(parts) && keep+1 < len(t.dirs) && t.dirs[keep+1].name == parts[keep] {
		keep++
	}
	if err := t.leave(keep + 1); err != nil {
		return 0, "", err
	}
	for _, part := range parts[keep:] {
		fd, err := openDirAt(t.dirs[len(t.dirs)-1].fd, part)
		if err != nil {
			return 0, "", err
		}
		t.dirs = append(t.dirs, localDir{name: part, fd: fd})
	}
	return t.dirs[len(t.dirs)-1].fd, name, nil
}

func openDirAt(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// leave closes all but the first keep directories, deepest first, and sets their attributes.
func (t *treeTarget) leave(keep int) error {
	var errs []error
	for len(t.dirs) > keep {
		d := t.dirs[len(t.dirs)-1]
		t.dirs = t.dirs[:len(t.dirs)-1]
		if d.node != nil {
			if err := t.attributes(d.fd, d.node); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", d.node.Path, err))
			}
		}
		errs = append(errs, unix.Close(d.fd))
	}
	return errors.Join(errs...)
}

// directory makes a directory or takes the one that is there, and stays in it.
func (t *treeTarget) directory(dir int, name string, n *api.Node) error {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := openDirAt(dir, name)
	if err != nil {
		return err
	}
	if len(n.Path) == 0 {
		name = ""
	}
	t.dirs = append(t.dirs, localDir{name: name, fd: fd, node: n})
	return nil
}

// create makes a node that is not a directory under a free name, complete or not at all.
func (t *treeTarget) create(dir int, name string, n *api.Node) error {
	var err error
	switch n.Type {
	case api.TypeFile:
		err = t.file(dir, name, n)
	case api.TypeLink:
		return t.link(dir, name, n)
	case api.TypeSymlink:
		err = unix.Symlinkat(string(n.Target), dir, name)
	default:
		err = unix.Mknodat(dir, name, api.TypeBits(n.Type)|0o600, int(n.Rdev))
	}
	if err != nil || n.Type == api.TypeFile {
		return err
	}
	if err := t.attributesAt(dir, name, n); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, name, 0))
	}
	return nil
}

func (t *treeTarget) file(dir int, name string, n *api.Node) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = t.content(fd)
	if err == nil {
		err = t.attributes(fd, n)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, name, 0))
	}
	return nil
}

// content writes what the stream brings; what it leaves out stays a hole.
func (t *treeTarget) content(fd int) error {
	written := int64(0)
	for {
		off, p, err := t.in.Data()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		for len(p) > 0 {
			n, err := unix.Pwrite(fd, p, off)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			p, off = p[n:], off+int64(n)
		}
		written = off
	}
	if t.in.Size() != written {
		return unix.Ftruncate(fd, t.in.Size())
	}
	return nil
}

// link makes another name of a node written before.
func (t *treeTarget) link(dir int, name string, n *api.Node) error {
	parts := strings.Split(string(n.Link), "/")
	at, err := unix.Dup(t.dirs[0].fd)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	for _, part := range parts[:len(parts)-1] {
		next, err := openDirAt(at, part)
		if err != nil {
			return err
		}
		unix.Close(at)
		at = next
	}
	return unix.Linkat(at, parts[len(parts)-1], dir, name, 0)
}

// attributes sets those of an open file or directory. Owner first: changing it clears set-user-ID; times last.
func (t *treeTarget) attributes(fd int, n *api.Node) error {
	mode := n.Mode
	if t.root {
		if err := unix.Fchown(fd, int(n.UID), int(n.GID)); err != nil {
			return err
		}
	} else {
		mode &^= 0o6000 // set-user-ID means the owner it had, who is somebody else here
	}
	for _, x := range n.Xattrs {
		if err := t.overlook(unix.Fsetxattr(fd, string(x.Name), x.Value, 0)); err != nil {
			return fmt.Errorf("attribute %q: %w", x.Name, err)
		}
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	times := timesOf(n)
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times, 0)
}

// attributesAt sets those of a node that is not opened: links, devices, fifos.
func (t *treeTarget) attributesAt(dir int, name string, n *api.Node) error {
	if t.root {
		if err := unix.Fchownat(dir, name, int(n.UID), int(n.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	for _, x := range n.Xattrs {
		p := fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
		if err := t.overlook(unix.Lsetxattr(p, string(x.Name), x.Value, 0)); err != nil {
			return fmt.Errorf("attribute %q: %w", x.Name, err)
		}
	}
	if n.Type != api.TypeSymlink {
		if err := unix.Fchmodat(dir, name, n.Mode, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(dir, name, timesOf(n), unix.AT_SYMLINK_NOFOLLOW)
}

// overlook accepts that users other than root may not set some attributes.
func (t *treeTarget) overlook(err error) error {
	if !t.root && errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

func timesOf(n *api.Node) []unix.Timespec {
	atime := n.Atime
	if atime == 0 {
		atime = n.Mtime
	}
	return []unix.Timespec{unix.NsecToTimespec(atime), unix.NsecToTimespec(n.Mtime)}
}

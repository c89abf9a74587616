package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/api"
	"wsfs/internal/cli"
)

// treeSource reads trees of this host into a tree stream. Directories are held open and everything is looked up
// relative to them, so the depth of a tree is not bounded by the longest path, and a directory that is moved meanwhile
// leads nowhere else.
type treeSource struct {
	out     *api.TreeWriter
	bar     *cli.Progress
	links   map[inodeID][]byte // first name in the stream of inodes with several
	buf     []byte
	skipped int
}

type inodeID struct{ dev, ino uint64 }

func newTreeSource(out *api.TreeWriter, bar *cli.Progress) *treeSource {
	return &treeSource{out: out, bar: bar, links: make(map[inodeID][]byte), buf: make([]byte, api.MaxData)}
}

// add sends local and all it holds as rel. A link named on the command line is sent as one; with contents (rel "" and
// "x/."), what it leads to is.
func (r *treeSource) add(local, rel string) error {
	return r.visit(unix.AT_FDCWD, local, local, []byte(rel))
}

// skip reports something that cannot be read and goes on.
func (r *treeSource) skip(shown string, err error) error {
	r.skipped++
	fmt.Fprintf(os.Stderr, "wsctl: put %s: %v\n", cli.Printable(shown), err)
	return r.out.Skip(&api.Error{Message: fmt.Sprintf("%s: %v", shown, err), Code: api.CodeFailed})
}

// visit sends the entry name of dir.
func (r *treeSource) visit(dir int, name, shown string, rel []byte) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return r.skip(shown, err)
	}
	n := nodeOf(rel, &st)
	if n.Type != api.TypeDir && st.Nlink > 1 {
		id := inodeID{uint64(st.Dev), st.Ino}
		if first, ok := r.links[id]; ok {
			return r.out.Node(&api.Node{Path: rel, Type: api.TypeLink, Link: first})
		}
		if len(rel) > 0 {
			defer func() { r.links[id] = rel }()
		}
	}
	switch n.Type {
	case api.TypeFile:
		return r.file(dir, name, shown, n)
	case api.TypeDir:
		return r.dir(dir, name, shown, n)
	case api.TypeSymlink:
		target, err := readlinkat(dir, name, int(st.Size))
		if err != nil {
			return r.skip(shown, err)
		}
		n.Target = target
	}
	var err error
	if n.Xattrs, err = xattrsAt(dir, name); err != nil {
		return r.skip(shown, err)
	}
	return r.out.Node(n)
}

func nodeOf(rel []byte, st *unix.Stat_t) *api.Node {
	return &api.Node{Path: rel, Type: api.FileType(st.Mode), Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Mtime: st.Mtim.Nano(), Atime: st.Atim.Nano(), Size: st.Size, Rdev: uint32(st.Rdev)}
}

func readlinkat(dir int, name string, size int) ([]byte, error) {
	buf := make([]byte, max(size, 255)+1)
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return nil, err
		}
		if n < len(buf) {
			return buf[:n], nil
		}
		buf = make([]byte, 2*len(buf))
	}
}

func (r *treeSource) dir(dir int, name, shown string, n *api.Node) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return r.skip(shown, err)
	}
	f := os.NewFile(uintptr(fd), shown)
	defer f.Close()
	if n.Xattrs, err = xattrsOf(fd); err != nil {
		return r.skip(shown, err)
	}
	if err := r.out.Node(n); err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return r.skip(shown, err)
	}
	slices.Sort(names)
	for _, child := range names {
		rel := []byte(child)
		if len(n.Path) > 0 {
			rel = append(append(append(make([]byte, 0, len(n.Path)+1+len(child)), n.Path...), '/'), child...)
		}
		if err := r.visit(fd, child, path.Join(shown, child), rel); err != nil {
			return err
		}
	}
	return nil
}

// file sends a regular file as it is when it is opened: what is appended meanwhile is left out.
func (r *treeSource) file(dir int, name, shown string, n *api.Node) error {
	// O_NONBLOCK: a fifo put in the file's place must not hang us.
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return r.skip(shown, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return r.skip(shown, err)
	}
	n = nodeOf(n.Path, &st)
	if n.Type != api.TypeFile {
		return r.skip(shown, errors.New("was replaced while it was read"))
	}
	if n.Xattrs, err = xattrsOf(fd); err != nil {
		return r.skip(shown, err)
	}
	if err := r.out.Node(n); err != nil {
		return err
	}
	size, err := r.content(fd, &st)
	if err != nil {
		return fmt.Errorf("reading %s: %w", shown, err)
	}
	t := r.out.Totals()
	r.bar.Bytes(t.Nodes, t.Bytes, 0)
	return r.out.End(size)
}

// content sends the data ranges and returns the size. An error ends the stream: half a file must not be stored as a
// whole one.
func (r *treeSource) content(fd int, st *unix.Stat_t) (int64, error) {
	sparse := st.Blocks*512 < st.Size
	for off := int64(0); off < st.Size; {
		start, end := off, st.Size
		if sparse {
			var err error
			if start, end, err = dataRange(fd, off, st.Size); err != nil {
				return 0, err
			}
		}
		for start < end {
			n, err := unix.Pread(fd, r.buf[:min(int64(len(r.buf)), end-start)], start)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if n == 0 {
				return start, nil // became shorter
			}
			if err := r.out.Data(start, r.buf[:n]); err != nil {
				return 0, err
			}
			start += int64(n)
		}
		off = max(end, off+1)
	}
	return st.Size, nil
}

// dataRange returns the next range at or after off that is not a hole; start == end == size if there is none. A file
// system that cannot tell has no holes.
func dataRange(fd int, off, size int64) (start, end int64, err error) {
	start, err = unix.Seek(fd, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL):
		return off, size, nil
	case err != nil:
		return 0, 0, err
	}
	if end, err = unix.Seek(fd, start, unix.SEEK_HOLE); err != nil {
		return 0, 0, err
	}
	return start, min(end, size), nil
}

// xattrsOf reads the extended attributes of an open file; a file system without any has none.
func xattrsOf(fd int) ([]api.Xattr, error) {
	return readXattrs(
		func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

// xattrsAt reads those of an entry that is not to be opened, by its name below its open directory.
func xattrsAt(dir int, name string) ([]api.Xattr, error) {
	p := name
	if dir != unix.AT_FDCWD {
		p = fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
	}
	return readXattrs(
		func(b []byte) (int, error) { return unix.Llistxattr(p, b) },
		func(attr string, b []byte) (int, error) { return unix.Lgetxattr(p, attr, b) })
}

func readXattrs(list func([]byte) (int, error), get func(string, []byte) (int, error)) ([]api.Xattr, error) {
	names, err := sized(list)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || len(names) == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []api.Xattr
	for _, name := range slices.Compact(splitNUL(names)) {
		value, err := sized(func(b []byte) (int, error) { return get(name, b) })
		if errors.Is(err, syscall.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		all = append(all, api.Xattr{Name: []byte(name), Value: value})
	}
	return all, nil
}

// sized calls a function that fills a buffer, with one that is large enough.
func sized(fill func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := fill(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		buf := make([]byte, n)
		if n, err = fill(buf); !errors.Is(err, unix.ERANGE) {
			return buf[:max(n, 0)], err
		}
	}
}

func splitNUL(b []byte) []string {
	var all []string
	start := 0
	for i, c := range b {
		if c == 0 {
			if i > start {
				all = append(all, string(b[start:i]))
			}
			start = i + 1
		}
	}
	return all
}

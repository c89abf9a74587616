// Package manifest records everything a file system promises to keep of a tree, so that two trees can be compared: an
// Entry is one name with its type, permissions, owner, nanosecond mtime, link group, size, content hash, extended
// attributes and hole map; a Manifest is all entries of a tree by path.
//
// Not recorded, because no restore can promise them: inode numbers, atime, ctime, and the size, link count and block count of a
// directory. Names are bytes; a Manifest key is the raw path relative to the root, "." for the root itself.
//
// Warning: a tree that changes while it is read gives a manifest of no instant.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry is what is recorded of one name.
type Entry struct {
	Mode   uint32            // st_mode: type and all permission bits
	UID    uint32            // owner
	GID    uint32            // group
	Mtime  int64             // ns since 1970
	Size   int64             // bytes; of regular files and symlinks
	Rdev   uint64            // of device nodes
	Nlink  uint64            // of everything but directories
	Link   string            // the first path, in byte order, of the same inode; "" where Nlink is 1
	Target string            // of a symlink
	SHA256 string            // of a regular file's content
	Xattrs map[string]string // every attribute that Llistxattr reports
	Holes  []Range           // of a regular file, ascending
}

// Range is a range of a file in bytes, To exclusive.
type Range struct{ From, To int64 }

// Manifest maps the path of every name below the root to what is recorded of it.
type Manifest map[string]Entry

// inode identifies a file while a tree is read.
type inode struct{ dev, ino uint64 }

// taker reads one tree.
type taker struct {
	root     string
	manifest Manifest
	first    map[inode]string // link group -> its first path
}

// Take records the tree at root, which may be any directory. Mount points below it are entered.
func Take(root string) (Manifest, error) {
	t := taker{root: root, manifest: Manifest{}, first: map[inode]string{}}
	if err := t.take("."); err != nil {
		return nil, fmt.Errorf("take a manifest of %s: %w", root, err)
	}
	return t.manifest, nil
}

// take records path and, if it is a directory, everything below it in byte order of the names.
func (t *taker) take(path string) error {
	full := filepath.Join(t.root, path)
	var st unix.Stat_t
	if err := unix.Lstat(full, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: full, Err: err}
	}
	entry, err := t.entry(path, full, &st)
	if err != nil {
		return err
	}
	t.manifest[path] = entry
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	names, err := readNames(full)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.take(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return nil, fmt.Errorf("directory %q lists %q twice", dir, names[i])
		}
	}
	return names, nil
}

// entry records one name.
func (t *taker) entry(path, full string, st *unix.Stat_t) (Entry, error) {
	e := Entry{Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano()}
	var err error
	if e.Xattrs, err = xattrs(full); err != nil {
		return e, err
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return e, nil
	}
	if e.Nlink = uint64(st.Nlink); e.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if _, seen := t.first[id]; !seen {
			t.first[id] = path
		}
		e.Link = t.first[id]
	}
	switch kind {
	case unix.S_IFREG:
		e.Size = st.Size
		e.SHA256, e.Holes, err = content(full, st.Size)
	case unix.S_IFLNK:
		e.Size = st.Size
		e.Target, err = os.Readlink(full)
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Rdev = uint64(st.Rdev)
	}
	return e, err
}

// content hashes a file and maps its holes.
func content(full string, size int64) (string, []Range, error) {
	f, err := os.Open(full)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	holes, err := holeMap(f, size)
	if err != nil {
		return "", nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", nil, err
	}
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err != nil {
		return "", nil, err
	}
	if n != size {
		return "", nil, fmt.Errorf("%s: read %d bytes of a file of %d", full, n, size)
	}
	return hex.EncodeToString(h.Sum(nil)), holes, nil
}

// holeMap lists the holes of an open file through SEEK_DATA and SEEK_HOLE. The hole every file has at its end is not
// one of them.
func holeMap(f *os.File, size int64) ([]Range, error) {
	var holes []Range
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data = size // nothing but hole to the end
		} else if err != nil {
			return nil, &os.PathError{Op: "seek data", Path: f.Name(), Err: err}
		}
		if data > at {
			holes = append(holes, Range{at, data})
		}
		if data >= size {
			break
		}
		if at, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
			return nil, &os.PathError{Op: "seek hole", Path: f.Name(), Err: err}
		}
		if at <= data {
			return nil, fmt.Errorf("%s: data at %d ends at %d", f.Name(), data, at)
		}
	}
	return holes, nil
}

// xattrs reads every extended attribute of a name without following a symlink; nil where there are none.
func xattrs(full string) (map[string]string, error) {
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(full, list)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: full, Err: err}
	}
	attrs := map[string]string{}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		n, err := unix.Lgetxattr(full, name, value)
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + name, Path: full, Err: err}
		}
		attrs[name] = string(value[:n])
	}
	return attrs, nil
}

// Bytes returns the total size of all regular files, each link group counted once.
func (m Manifest) Bytes() int64 {
	var total int64
	for path, e := range m {
		if e.Mode&unix.S_IFMT == unix.S_IFREG && (e.Link == "" || e.Link == path) {
			total += e.Size
		}
	}
	return total
}

// Sub returns the part of m at and below dir, with paths relative to dir.
func (m Manifest) Sub(dir string) Manifest {
	sub := Manifest{}
	for path, e := range m {
		if path == dir {
			sub["."] = e
		} else if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			e.Link = strings.TrimPrefix(e.Link, dir+"/")
			sub[rest] = e
		}
	}
	return sub
}

// Diff describes up to limit differences between two manifests, in byte order of the path, and counts all of them.
func Diff(want, have Manifest, limit int) (lines []string, total int) {
	add := func(format string, args ...any) {
		if total++; len(lines) < limit {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	paths := slices.Collect(maps.Keys(want))
	for path := range have {
		if _, both := want[path]; !both {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		w, wanted := want[path]
		h, present := have[path]
		switch {
		case !present:
			add("%q: missing", path)
		case !wanted:
			add("%q: not expected", path)
		default:
			for _, d := range w.diff(h) {
				add("%q: %s", path, d)
			}
		}
	}
	return lines, total
}

// diff lists the fields in which two entries differ.
func (e Entry) diff(o Entry) []string {
	var out []string
	field := func(name string, want, have any, equal bool) {
		if !equal {
			out = append(out, fmt.Sprintf("%s: want %v, have %v", name, want, have))
		}
	}
	field("mode", fmt.Sprintf("%#o", e.Mode), fmt.Sprintf("%#o", o.Mode), e.Mode == o.Mode)
	field("uid", e.UID, o.UID, e.UID == o.UID)
	field("gid", e.GID, o.GID, e.GID == o.GID)
	field("mtime", e.Mtime, o.Mtime, e.Mtime == o.Mtime)
	field("size", e.Size, o.Size, e.Size == o.Size)
	field("rdev", e.Rdev, o.Rdev, e.Rdev == o.Rdev)
	field("nlink", e.Nlink, o.Nlink, e.Nlink == o.Nlink)
	field("link group", fmt.Sprintf("%q", e.Link), fmt.Sprintf("%q", o.Link), e.Link == o.Link)
	field("target", fmt.Sprintf("%q", e.Target), fmt.Sprintf("%q", o.Target), e.Target == o.Target)
	field("content", e.SHA256, o.SHA256, e.SHA256 == o.SHA256)
	field("xattrs", fmt.Sprintf("%q", e.Xattrs), fmt.Sprintf("%q", o.Xattrs), maps.Equal(e.Xattrs, o.Xattrs))
	field("holes", e.Holes, o.Holes, slices.Equal(e.Holes, o.Holes))
	return out
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs"
)

// lines writes an answer of JSON lines, flushing as it goes when asked.
type lines struct {
	w   http.ResponseWriter
	enc *json.Encoder
}

func newLines(w http.ResponseWriter) *lines {
	w.Header().Set("Content-Type", ndjson)
	w.WriteHeader(http.StatusOK)
	return &lines{w: w, enc: json.NewEncoder(w)}
}

func (l *lines) put(v any) error { return l.enc.Encode(v) }

func (l *lines) flush() { _ = http.NewResponseController(l.w).Flush() } // a writer that cannot flush sends at the end

func (s *server) stat(w http.ResponseWriter, r *http.Request, q query) error {
	look := s.w.Lstat
	if q.bool("follow") {
		look = s.w.Stat
	}
	a, err := look(r.Context(), q.path("path"))
	if err != nil {
		return err
	}
	e, err := s.entry(r.Context(), q.path("path"), a)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, e)
	return nil
}

// list answers the entries of a directory, in the directory's own order. With recursive, a directory's entry comes
// before what it holds.
func (s *server) list(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p := r.Context(), q.path("path")
	a, err := s.w.Lstat(ctx, p)
	if err != nil {
		return err
	}
	if a.IsSymlink() {
		if b, err := s.w.Stat(ctx, p); err == nil && b.IsDir() {
			a = b
		}
	}
	out := newLines(w)
	if a.IsDir() {
		err = s.listDir(ctx, p, a.Ino, q.bool("recursive"), out)
	} else {
		err = s.listOne(ctx, p, a, out)
	}
	last := ListLine{End: err == nil}
	if err != nil {
		last.Error = s.asError(err)
	}
	return out.put(last)
}

func (s *server) listOne(ctx context.Context, p string, a wsfs.Attr, out *lines) error {
	e, err := s.entry(ctx, p, a)
	if err != nil {
		return err
	}
	return out.put(ListLine{Entry: &e})
}

func (s *server) listDir(ctx context.Context, p string, dir wsfs.Ino, recursive bool, out *lines) error {
	return s.eachEntry(ctx, p, dir, func(d wsfs.DirEntry) error {
		child := path.Join(p, d.Name)
		a, err := s.w.GetAttr(ctx, d.Ino)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESTALE) {
			return nil // removed since the entry was read
		}
		if err != nil {
			return pathError("stat", child, err)
		}
		if err := s.listOne(ctx, child, a, out); err != nil {
			return err
		}
		if recursive && a.IsDir() {
			return s.listDir(ctx, child, d.Ino, true, out)
		}
		return nil
	})
}

// eachEntry calls fn for every entry but "." and "..", a batch at a time, so that fn may change the directory.
func (s *server) eachEntry(ctx context.Context, p string, dir wsfs.Ino, fn func(wsfs.DirEntry) error) error {
	const batch = 512
	for cookie := uint64(0); ; {
		var got []wsfs.DirEntry
		more := false
		err := s.w.ReadDir(ctx, dir, cookie, func(d wsfs.DirEntry) bool {
			if more = len(got) == batch; more {
				return false
			}
			got = append(got, d)
			return true
		})
		if err != nil {
			return pathError("readdir", p, err)
		}
		for _, d := range got {
			cookie = d.Cookie
			if d.Name == "." || d.Name == ".." {
				continue
			}
			if err := fn(d); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

func (s *server) mkdir(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p, mode := r.Context(), q.path("path"), q.octal("mode", 0o755)
	var err error
	if q.bool("parents") {
		err = s.w.MkdirAll(ctx, p, mode)
	} else {
		err = s.w.MkdirPath(ctx, p, mode)
	}
	if err != nil {
		return err
	}
	return s.stat(w, r, q)
}

func (s *server) remove(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, p := r.Context(), q.path("path")
	if p == "/" && q.bool("recursive") {
		return pathError("rm", p, syscall.EBUSY)
	}
	a, err := s.w.Lstat(ctx, p)
	if err != nil {
		if q.bool("force") && errors.Is(err, fs.ErrNotExist) {
			reply(w, http.StatusOK, Done{true})
			return nil
		}
		return err
	}
	switch {
	case q.bool("recursive"):
		err = s.w.RemoveAll(ctx, p)
	case a.IsDir():
		err = pathError("rm", p, syscall.EISDIR)
	default:
		err = s.w.Remove(ctx, p)
	}
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, Done{true})
	return nil
}

func (s *server) rename(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, from, to := r.Context(), q.path("from"), q.path("to")
	if q.bool("no_replace") {
		if _, err := s.w.Lstat(ctx, to); err == nil {
			return pathError("mv", to, syscall.EEXIST)
		}
	}
	if err := s.w.RenamePath(ctx, from, to); err != nil {
		return err
	}
	reply(w, http.StatusOK, Done{true})
	return nil
}

// copy duplicates a file or a tree. Content is shared where the core can share it (CopyRange).
func (s *server) copy(w http.ResponseWriter, r *http.Request, q query) error {
	ctx, from, to := r.Context(), q.path("from"), q.path("to")
	a, err := s.w.Lstat(ctx, from)
	if err != nil {
		return err
	}
	if a.IsDir() && !q.bool("recursive") {
		return pathError("cp", from, syscall.EISDIR)
	}
	if to == from || strings.HasPrefix(to, strings.TrimSuffix(from, "/")+"/") {
		return usageError("cp %s %s: a tree cannot be copied into itself", from, to)
	}
	t, err := s.newSink(ctx, to)
	if err != nil {
		return err
	}
	totals, err := s.copyTree(ctx, from, a, t)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, totals)
	return nil
}

// copyTree walks from and writes each node through the sink, with content by CopyRange.
func (s *server) copyTree(ctx context.Context, from string, a wsfs.Attr, t *sink) (Totals, error) {
	var totals Totals
	links := make(map[wsfs.Ino][]byte)
	err := s.walk(ctx, from, "", a, links, func(n *Node, a wsfs.Attr) error {
		totals.Nodes++
		if n.Type != TypeFile {
			return t.put(ctx, n, nil)
		}
		return t.put(ctx, n, func(ctx context.Context, dst *wsfs.Handle) (int64, error) {
			src, err := s.w.OpenInode(ctx, a.Ino, wsfs.OpenOptions{})
			if err != nil {
				return 0, err
			}
			defer src.Close()
			n, err := copyContent(ctx, src, dst, a.Size)
			totals.Bytes += n
			return a.Size, err
		})
	})
	if err != nil {
		t.abandon()
		return totals, err
	}
	return totals, t.close(ctx)
}

// copyContent copies the data ranges of src and leaves its holes. It returns the bytes copied.
func copyContent(ctx context.Context, src, dst *wsfs.Handle, size int64) (int64, error) {
	var total int64
	for off := int64(0); off < size; {
		start, end, err := dataRange(ctx, src, off, size)
		if err != nil {
			return total, err
		}
		for start < end {
			n, err := src.CopyRange(ctx, start, dst, start, end-start)
			if err != nil {
				return total, err
			}
			if n == 0 {
				return total, nil // the source became shorter
			}
			start, total = start+n, total+n
		}
		off = max(end, off+1)
	}
	return total, nil
}

// dataRange returns the next range at or after off that is not a hole; start == end == size if there is none.
func dataRange(ctx context.Context, h *wsfs.Handle, off, size int64) (start, end int64, err error) {
	start, err = h.Seek(ctx, off, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if end, err = h.Seek(ctx, start, unix.SEEK_HOLE); err != nil {
		return 0, 0, err
	}
	return start, min(end, size), nil
}

// walk calls fn for the file p (rel in the stream) and everything below it: directories first, names in byte order,
// so that two walks of one state are equal. links finds hard links to inodes met before.
func (s *server) walk(ctx context.Context, p, rel string, a wsfs.Attr, links map[wsfs.Ino][]byte, fn func(*Node, wsfs.Attr) error) error {
	n := &Node{Path: []byte(rel), Type: fileType(a.Mode), Mode: a.Mode & 07777, UID: a.UID, GID: a.GID,
		Mtime: a.Mtime, Atime: a.Atime, Size: a.Size, Rdev: a.Rdev}
	if !a.IsDir() && a.Nlink > 1 {
		if first, ok := links[a.Ino]; ok {
			return fn(&Node{Path: n.Path, Type: TypeLink, Link: first}, a)
		}
		if rel != "" {
			links[a.Ino] = n.Path
		}
	}
	if err := s.describe(ctx, p, a, n); err != nil {
		return err
	}
	if err := fn(n, a); err != nil || !a.IsDir() {
		return err
	}
	var children []wsfs.DirEntry
	if err := s.eachEntry(ctx, p, a.Ino, func(d wsfs.DirEntry) error {
		children = append(children, d)
		return nil
	}); err != nil {
		return err
	}
	slices.SortFunc(children, func(a, b wsfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range children {
		child, err := s.w.GetAttr(ctx, d.Ino)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESTALE) {
			continue // removed since the entry was read
		}
		if err == nil {
			err = s.walk(ctx, path.Join(p, d.Name), strings.TrimPrefix(rel+"/"+d.Name, "/"), child, links, fn)
		}
		if err != nil {
			return pathError("walk", path.Join(p, d.Name), err)
		}
	}
	return nil
}

// describe adds what needs a call of its own: a link's target and the extended attributes.
func (s *server) describe(ctx context.Context, p string, a wsfs.Attr, n *Node) error {
	if a.IsSymlink() {
		target, err := s.w.Readlink(ctx, a.Ino)
		if err != nil {
			return pathError("readlink", p, err)
		}
		n.Target = []byte(target)
	}
	names, err := s.w.ListXattr(ctx, a.Ino)
	if err != nil {
		return pathError("listxattr", p, err)
	}
	for _, name := range names {
		v, err := s.w.GetXattr(ctx, a.Ino, name)
		if errors.Is(err, syscall.ENODATA) {
			continue // removed since the list was read
		}
		if err != nil {
			return pathError("getxattr", p, err)
		}
		n.Xattrs = append(n.Xattrs, Xattr{[]byte(name), v})
	}
	return nil
}

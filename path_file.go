package wsfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// File is a file opened by path. Its writes invalidate the kernel's cache of it. It is safe for concurrent use but for
// the position, which Read, Write and Seek share.
type File struct {
	ctx  context.Context
	w    *Workspace
	h    *Handle
	name string
	attr Attr

	mu  sync.Mutex // guards the position
	pos int64
}

// OpenFile opens a path with the flags of os.OpenFile (O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_CREATE, O_EXCL, O_TRUNC).
// mode are the permission bits of a created file. The context serves every later call on the File.
func (w *Workspace) OpenFile(ctx context.Context, name string, flags int, mode uint32) (*File, error) {
	f, err := w.openFile(ctx, name, flags, mode)
	return f, pathError("open", name, err)
}

func (w *Workspace) openFile(ctx context.Context, name string, flags int, mode uint32) (*File, error) {
	access := flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	o := OpenOptions{Write: access != os.O_RDONLY, Append: flags&os.O_APPEND != 0, Truncate: flags&os.O_TRUNC != 0,
		Excl: flags&os.O_EXCL != 0}
	excl := flags&os.O_CREATE != 0 && o.Excl
	dir, last, a, exists, err := w.resolve(ctx, name, !excl)
	if err != nil {
		return nil, err
	}
	var h *Handle
	switch {
	case exists && excl:
		return nil, syscall.EEXIST
	case exists:
		h, err = w.OpenInode(ctx, a.Ino, o)
	case flags&os.O_CREATE == 0:
		return nil, syscall.ENOENT
	default:
		a, h, err = w.Create(ctx, dir, last, mode, w.owner(), o)
		w.entryChanged(err, dir, last)
	}
	if err != nil {
		return nil, err
	}
	f := &File{ctx: ctx, w: w, h: h, name: name, attr: a}
	if o.Truncate {
		w.inodeChanged(nil, a.Ino)
	}
	return f, nil
}

// Ino is the inode number of the file.
func (f *File) Ino() Ino { return f.attr.Ino }

// ReadAt reads as io.ReaderAt says.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.h.ReadAt(f.ctx, p, off)
	if err == nil && n < len(p) {
		return n, io.EOF
	}
	return n, pathError("read", f.name, err)
}

// Read reads from the position on.
func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.h.ReadAt(f.ctx, p, f.pos)
	f.pos += int64(n)
	if err == nil && n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, pathError("read", f.name, err)
}

// WriteAt writes at off, or at the end with O_APPEND.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.h.WriteAt(f.ctx, p, off)
	f.w.inodeChanged(err, f.attr.Ino)
	return n, pathError("write", f.name, err)
}

// Write writes at the position and moves it.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Seek sets the position; SEEK_DATA and SEEK_HOLE work too.
func (f *File) Seek(off int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pos, err := f.seek(off, whence)
	if err != nil {
		return 0, pathError("seek", f.name, err)
	}
	f.pos = pos
	return pos, nil
}

func (f *File) seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		off += f.pos
	case io.SeekEnd:
		a, err := f.w.GetAttr(f.ctx, f.attr.Ino)
		if err != nil {
			return 0, err
		}
		off += a.Size
	default:
		return f.h.Seek(f.ctx, off, whence)
	}
	if off < 0 {
		return 0, syscall.EINVAL
	}
	return off, nil
}

// Truncate sets the size.
func (f *File) Truncate(size int64) error {
	err := f.h.Truncate(f.ctx, size)
	f.w.inodeChanged(err, f.attr.Ino)
	return pathError("truncate", f.name, err)
}

// Sync is fsync.
func (f *File) Sync() error { return pathError("sync", f.name, f.h.Sync(f.ctx)) }

// Attr returns the attributes now.
func (f *File) Attr() (Attr, error) {
	a, err := f.w.GetAttr(f.ctx, f.attr.Ino)
	return a, pathError("stat", f.name, err)
}

// Stat satisfies fs.File.
func (f *File) Stat() (fs.FileInfo, error) {
	a, err := f.Attr()
	return fileStat{path.Base(f.name), a}, err
}

// Close closes the file.
func (f *File) Close() error { return pathError("close", f.name, f.h.Close()) }

// ReadFile returns a file's content.
func (w *Workspace) ReadFile(ctx context.Context, name string) ([]byte, error) {
	f, err := w.OpenFile(ctx, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := f.Attr()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 0, a.Size+1)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf)+512)
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// WriteFile sets a file's content, making it with mode if it is not there.
func (w *Workspace) WriteFile(ctx context.Context, name string, data []byte, mode uint32) error {
	f, err := w.OpenFile(ctx, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// fileStat is an Attr as fs.FileInfo.
type fileStat struct {
	name string
	attr Attr
}

func (i fileStat) Name() string       { return i.name }
func (i fileStat) Size() int64        { return i.attr.Size }
func (i fileStat) Mode() fs.FileMode  { return FileMode(i.attr.Mode) }
func (i fileStat) ModTime() time.Time { return time.Unix(0, i.attr.Mtime) }
func (i fileStat) IsDir() bool        { return i.attr.IsDir() }
func (i fileStat) Sys() any           { return &i.attr }

// FileMode turns st_mode into fs.FileMode.
func FileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		m |= fs.ModeDir
	case syscall.S_IFLNK:
		m |= fs.ModeSymlink
	case syscall.S_IFIFO:
		m |= fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		m |= fs.ModeSocket
	case syscall.S_IFBLK:
		m |= fs.ModeDevice
	case syscall.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	}
	if mode&syscall.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if mode&syscall.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if mode&syscall.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}

var (
	_ fs.FS          = (*Workspace)(nil)
	_ fs.ReadDirFile = (*dirFile)(nil)
	_ io.ReaderAt    = (*File)(nil)
	_ io.WriterAt    = (*File)(nil)
	_ io.ReadSeeker  = (*File)(nil)
)

// Open satisfies fs.FS: name is slash-separated, relative to the root, without "." or ".." elements.
func (w *Workspace) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	ctx := context.Background()
	_, _, a, err := w.found(ctx, name, true)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if a.IsDir() {
		return &dirFile{w: w, name: name, attr: a}, nil
	}
	return w.OpenFile(ctx, name, os.O_RDONLY, 0)
}

// dirFile is an open directory of fs.FS.
type dirFile struct {
	w       *Workspace
	name    string
	attr    Attr
	entries []fs.DirEntry
	loaded  bool
}

func (d *dirFile) Stat() (fs.FileInfo, error) { return fileStat{path.Base(d.name), d.attr}, nil }
func (d *dirFile) Close() error               { return nil }
func (d *dirFile) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: syscall.EISDIR}
}

// ReadDir returns up to n entries in order of their names, as fs.ReadDirFile says.
func (d *dirFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.loaded {
		list, err := d.w.list(context.Background(), d.attr.Ino)
		if err != nil {
			return nil, pathError("readdir", d.name, err)
		}
		slices.SortFunc(list, func(a, b DirEntry) int { return strings.Compare(a.Name, b.Name) })
		for _, e := range list {
			d.entries = append(d.entries, fsEntry{d.w, e})
		}
		d.loaded = true
	}
	if n <= 0 {
		out := d.entries
		d.entries = nil
		return out, nil
	}
	if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	out := d.entries[:n]
	d.entries = d.entries[n:]
	return out, nil
}

type fsEntry struct {
	w *Workspace
	e DirEntry
}

func (e fsEntry) Name() string      { return e.e.Name }
func (e fsEntry) IsDir() bool       { return e.e.Type == syscall.DT_DIR }
func (e fsEntry) Type() fs.FileMode { return FileMode(uint32(e.e.Type) << 12).Type() }
func (e fsEntry) Info() (fs.FileInfo, error) {
	a, err := e.w.GetAttr(context.Background(), e.e.Ino)
	if errors.Is(err, syscall.ENOENT) {
		err = fs.ErrNotExist
	}
	return fileStat{e.e.Name, a}, err
}

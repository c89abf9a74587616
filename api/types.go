package api

import (
	"context"
	"fmt"
	"path"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"wsfs"
)

// Mount describes a live mount.
type Mount struct {
	Dir         string `json:"dir"` // "" without a mount
	ReadOnly    bool   `json:"read_only"`
	Passthrough bool   `json:"passthrough"` // what the kernel granted
	Options     string `json:"options"`     // as given
	// Requests counts what the kernel asked since the mount, by request name; filled in by status.
	Requests map[string]uint64 `json:"requests,omitempty"`
}

// Entry is one name in the workspace with its attributes.
type Entry struct {
	Path         string    `json:"path"`
	PathBase64   []byte    `json:"path_base64,omitempty"` // the exact bytes, where Path is not UTF-8
	Name         string    `json:"name"`
	NameBase64   []byte    `json:"name_base64,omitempty"`
	Type         string    `json:"type"`
	Mode         string    `json:"mode"` // permission bits, octal: "0644"
	UID          uint32    `json:"uid"`
	GID          uint32    `json:"gid"`
	Nlink        uint32    `json:"nlink"`
	Size         int64     `json:"size"`
	Blocks       int64     `json:"blocks"` // 512-byte units
	Ino          uint64    `json:"ino"`
	Rdev         uint32    `json:"rdev,omitempty"`
	Atime        time.Time `json:"atime"`
	Mtime        time.Time `json:"mtime"`
	Ctime        time.Time `json:"ctime"`
	Btime        time.Time `json:"btime"`
	Target       string    `json:"target,omitempty"` // symlinks
	TargetBase64 []byte    `json:"target_base64,omitempty"`
}

// RawPath, RawName and RawTarget are the exact bytes.
func (e *Entry) RawPath() string   { return raw(e.Path, e.PathBase64) }
func (e *Entry) RawName() string   { return raw(e.Name, e.NameBase64) }
func (e *Entry) RawTarget() string { return raw(e.Target, e.TargetBase64) }

func raw(s string, exact []byte) string {
	if exact != nil {
		return string(exact)
	}
	return s
}

// split gives a name its two JSON forms.
func split(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return s, []byte(s)
}

// fileType maps st_mode to the names of this API.
func fileType(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return TypeDir
	case syscall.S_IFLNK:
		return TypeSymlink
	case syscall.S_IFIFO:
		return TypeFifo
	case syscall.S_IFSOCK:
		return TypeSocket
	case syscall.S_IFCHR:
		return TypeChar
	case syscall.S_IFBLK:
		return TypeBlock
	}
	return TypeFile
}

// typeBits is the inverse of fileType.
func typeBits(t string) uint32 {
	switch t {
	case TypeDir:
		return syscall.S_IFDIR
	case TypeSymlink:
		return syscall.S_IFLNK
	case TypeFifo:
		return syscall.S_IFIFO
	case TypeSocket:
		return syscall.S_IFSOCK
	case TypeChar:
		return syscall.S_IFCHR
	case TypeBlock:
		return syscall.S_IFBLK
	}
	return syscall.S_IFREG
}

// TypeBits returns the S_IFMT bits of a Type constant; a regular file's for anything else.
func TypeBits(t string) uint32 { return typeBits(t) }

// FileType returns the Type constant of an st_mode.
func FileType(mode uint32) string { return fileType(mode) }

func (s *server) entry(ctx context.Context, p string, a wsfs.Attr) (Entry, error) {
	e := Entry{Type: fileType(a.Mode), Mode: fmt.Sprintf("%04o", a.Mode&07777), UID: a.UID, GID: a.GID, Nlink: a.Nlink,
		Size: a.Size, Blocks: a.Blocks, Ino: uint64(a.Ino), Rdev: a.Rdev,
		Atime: stamp(a.Atime), Mtime: stamp(a.Mtime), Ctime: stamp(a.Ctime), Btime: stamp(a.Btime)}
	e.Path, e.PathBase64 = split(p)
	e.Name, e.NameBase64 = split(path.Base(p))
	if a.IsSymlink() {
		target, err := s.w.Readlink(ctx, a.Ino)
		if err != nil {
			return e, pathError("readlink", p, err)
		}
		e.Target, e.TargetBase64 = split(target)
	}
	return e, nil
}

func stamp(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// DeviceNumbers splits an Rdev.
func DeviceNumbers(rdev uint32) (major, minor uint32) {
	return unix.Major(uint64(rdev)), unix.Minor(uint64(rdev))
}

// ListLine is one line of a listing: an entry, or the end. A listing without its end line was cut short.
type ListLine struct {
	Entry *Entry `json:"entry,omitempty"`
	Error *Error `json:"error,omitempty"`
	End   bool   `json:"end,omitempty"`
}

// Space is what df tells, in bytes and inodes.
type Space struct {
	Total     uint64 `json:"total"`
	Free      uint64 `json:"free"`
	Avail     uint64 `json:"avail"`
	Files     uint64 `json:"files"`
	FreeFiles uint64 `json:"free_files"`
}

// Done is the answer of a request that has nothing to tell.
type Done struct {
	OK bool `json:"ok"`
}

// StopEvent is one step of the daemon's end.
type StopEvent struct {
	State      string `json:"state"` // "unmounting", "committing", "done"
	DirtyBytes int64  `json:"dirty_bytes,omitempty"`
	CacheDir   string `json:"cache_dir,omitempty"` // where unsynced work stays
	Error      *Error `json:"error,omitempty"`
}

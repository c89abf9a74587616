package wsfs

import (
	"syscall"

	"wsfs/metadata"
)

// Ino is an inode number; the root directory is RootIno.
type Ino = metadata.Ino

// RootIno is the root directory.
const RootIno = metadata.RootIno

// Owner is the user and group a new inode belongs to.
type Owner struct{ UID, GID uint32 }

// Attr is what stat(2) tells of an inode. Times are nanoseconds since 1970 UTC.
type Attr struct {
	Ino    Ino
	Mode   uint32 // file type and permission bits, as in st_mode
	Nlink  uint32
	UID    uint32
	GID    uint32
	Rdev   uint32
	Size   int64 // bytes
	Blocks int64 // 512-byte units
	Atime  int64
	Mtime  int64
	Ctime  int64
	Btime  int64
}

// IsDir, IsRegular and IsSymlink tell the file type.
func (a *Attr) IsDir() bool     { return a.Mode&syscall.S_IFMT == syscall.S_IFDIR }
func (a *Attr) IsRegular() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFREG }
func (a *Attr) IsSymlink() bool { return a.Mode&syscall.S_IFMT == syscall.S_IFLNK }

// SetMask says which fields of a SetAttr count.
type SetMask uint32

// The bits of a SetMask.
const (
	SetMode SetMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow // the core's clock, instead of Atime
	SetMtimeNow
	SetCtime    // only restore tools set it
	SetKillPriv // clear set-user-ID and set-group-ID as a write by an unprivileged process does
)

// SetAttr is a change of attributes; ctime moves by itself.
type SetAttr struct {
	Mask  SetMask
	Mode  uint32 // permission bits only
	UID   uint32
	GID   uint32
	Size  int64
	Atime int64
	Mtime int64
	Ctime int64
}

// DirEntry is one entry ReadDir reports. Cookie is the position after it.
type DirEntry struct {
	Name   string
	Ino    Ino
	Type   uint8 // DT_REG, DT_DIR, ...
	Cookie uint64
}

// OpenOptions says how a file is opened.
type OpenOptions struct {
	Write    bool
	Append   bool // every write goes to the end
	Truncate bool
	// Passthrough asks for a file the kernel may read and write by itself. Whether it was granted is what
	// Handle.Backing tells: the core refuses where the content is not worth a staging file.
	Passthrough bool
	Excl        bool // Create: fail with EEXIST where the name exists
}

// Statfs is what statfs(2) tells, in bytes and inodes.
type Statfs struct {
	Total, Free, Avail uint64 // bytes
	Files, FreeFiles   uint64
}

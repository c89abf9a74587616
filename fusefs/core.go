package fusefs

import (
	"context"
	"os"

	"wsfs"
)

// core is what this package asks of the file system, method for method those of wsfs.Workspace. Errors are syscall.Errno
// values, or those of the context where the call was cancelled and had no effect.
type core interface {
	reader
	maker
	mover
	opener
	xattrStore
	keeper
}

// reader looks and never changes.
type reader interface {
	Lookup(ctx context.Context, parent wsfs.Ino, name string) (wsfs.Attr, error)
	GetAttr(ctx context.Context, ino wsfs.Ino) (wsfs.Attr, error)
	Readlink(ctx context.Context, ino wsfs.Ino) (string, error)
	ReadDir(ctx context.Context, ino wsfs.Ino, cookie uint64, fn func(wsfs.DirEntry) bool) error
	Statfs(ctx context.Context) (wsfs.Statfs, error)
}

// maker makes inodes that are not open. Modes have the caller's umask applied.
type maker interface {
	Mkdir(ctx context.Context, parent wsfs.Ino, name string, mode uint32, o wsfs.Owner) (wsfs.Attr, error)
	Mknod(ctx context.Context, parent wsfs.Ino, name string, mode, rdev uint32, o wsfs.Owner) (wsfs.Attr, error)
	Symlink(ctx context.Context, parent wsfs.Ino, name, target string, o wsfs.Owner) (wsfs.Attr, error)
	Link(ctx context.Context, ino, parent wsfs.Ino, name string) (wsfs.Attr, error)
}

// mover changes names and attributes.
type mover interface {
	SetAttr(ctx context.Context, ino wsfs.Ino, s wsfs.SetAttr) (wsfs.Attr, error)
	Unlink(ctx context.Context, parent wsfs.Ino, name string) error
	Rmdir(ctx context.Context, parent wsfs.Ino, name string) error
	Rename(ctx context.Context, parent wsfs.Ino, name string, newParent wsfs.Ino, newName string, flags uint32) error
}

// opener opens files.
type opener interface {
	Create(ctx context.Context, parent wsfs.Ino, name string, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error)
	Tmpfile(ctx context.Context, parent wsfs.Ino, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error)
	OpenInode(ctx context.Context, ino wsfs.Ino, o wsfs.OpenOptions) (handle, error)
	CopyRange(ctx context.Context, src handle, off int64, dst handle, dstOff, n int64) (int64, error)
}

// xattrStore keeps extended attributes.
type xattrStore interface {
	GetXattr(ctx context.Context, ino wsfs.Ino, name string) ([]byte, error)
	SetXattr(ctx context.Context, ino wsfs.Ino, name string, value []byte, flags uint32) error
	ListXattr(ctx context.Context, ino wsfs.Ino) ([]string, error)
	RemoveXattr(ctx context.Context, ino wsfs.Ino, name string) error
}

// keeper counts the kernel's references and makes changes durable.
type keeper interface {
	SyncLocal(ctx context.Context) error
	Retain(ino wsfs.Ino, n uint64)
	Forget(ino wsfs.Ino, n uint64)
}

// handle is an open file of the core, method for method those of wsfs.Handle.
type handle interface {
	Ino() wsfs.Ino
	Backing() *os.File
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	WriteAt(ctx context.Context, p []byte, off int64) (int, error)
	Allocate(ctx context.Context, mode uint32, off, n int64) error
	Seek(ctx context.Context, off int64, whence int) (int64, error)
	Sync(ctx context.Context) error
	Close() error
}

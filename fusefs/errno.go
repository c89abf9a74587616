package fusefs

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// errnoOf is the one place where an error becomes a number for the kernel. known is false where the error carried none
// and became EIO: somebody should read its text in the log.
func errnoOf(err error) (no syscall.Errno, known bool) {
	if no, ok := err.(syscall.Errno); ok { // nearly always, and without allocation
		return no, true
	}
	return wrappedErrno(err)
}

func wrappedErrno(err error) (no syscall.Errno, known bool) {
	switch {
	case errors.As(err, &no):
		return no, true
	case errors.Is(err, context.Canceled):
		return syscall.EINTR, true
	case errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT, true
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT, true
	case errors.Is(err, fs.ErrClosed):
		return syscall.EBADF, true
	}
	return syscall.EIO, false
}

// status maps err, met while answering the request of h.
func (f *fileSystem) status(h *fuse.InHeader, err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	no, known := errnoOf(err)
	if !known {
		f.log.Error("request failed", "op", opName(h.Opcode), "inode", h.NodeId, "err", err)
	}
	return fuse.Status(no)
}

// gone turns ENOENT for an inode number into ESTALE: the kernel then walks the path again, with fresh lookups, instead of
// telling a program that a name is missing which never was (a replace by rename from another front end).
func gone(err error) error {
	if err == syscall.ENOENT {
		return syscall.ESTALE
	}
	return err
}

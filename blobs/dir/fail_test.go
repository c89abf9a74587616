package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"wsfs/blobs"
)

// TestFail is the table of what the file system says and what the contract calls it.
func TestFail(t *testing.T) {
	s := &Store{root: t.TempDir()}
	gone := &Store{root: s.root + "/gone"}
	for _, c := range []struct {
		store *Store
		err   error
		want  error
	}{
		{s, syscall.EACCES, blobs.ErrDenied},
		{s, syscall.EPERM, blobs.ErrDenied},
		{s, syscall.EROFS, blobs.ErrDenied},
		{s, syscall.ENOSPC, blobs.ErrUnavailable},
		{s, syscall.EDQUOT, blobs.ErrUnavailable},
		{s, syscall.EIO, blobs.ErrUnavailable},
		{s, syscall.EMFILE, blobs.ErrUnavailable},
		{s, syscall.ENOENT, blobs.ErrNotExist},
		{s, syscall.ENOTDIR, blobs.ErrNotExist},
		{gone, syscall.ENOENT, blobs.ErrNoStore},
		{s, context.Canceled, context.Canceled},
	} {
		err := c.store.fail("put", "k", &fs.PathError{Op: "open", Path: "p", Err: c.err})
		if !errors.Is(err, c.want) {
			t.Errorf("%v became %v, want %v", c.err, err, c.want)
		}
		for _, other := range []error{blobs.ErrDenied, blobs.ErrUnavailable, blobs.ErrNotExist, blobs.ErrNoStore} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("%v became %v, which also matches %v", c.err, err, other)
			}
		}
	}
	if err := s.fail("put", "k", &fs.PathError{Op: "write", Path: "p", Err: syscall.ENOSPC}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v does not say that the disk is full", err)
	}
}

// TestFullDisk writes to a file system of 1 MiB, where this process may mount one.
func TestFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		if os.Geteuid() == 0 && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		t.Skip("may not mount a small file system here; TestFail checks the mapping")
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(t.Context(), &blobs.Location{Scheme: "dir", Path: root}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "small", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for _, put := range []func(context.Context, string, []byte) error{s.Put, s.PutIfAbsent} {
		err := put(t.Context(), "large", make([]byte, 3<<20))
		if !errors.Is(err, blobs.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("put on a full disk: %v", err)
		}
	}
	if page, err := s.List(t.Context(), "", "", 0); err != nil || len(page) != 1 {
		t.Errorf("after it the store lists %v, %v", page, err)
	}
	if err := s.Put(t.Context(), "small2", make([]byte, 500<<10)); err != nil {
		t.Errorf("the failed puts did not give their space back: %v", err)
	}
}

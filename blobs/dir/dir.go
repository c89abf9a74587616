// Package dir is the driver for a local directory: the store of a person on one laptop.
//
// An object is a file whose path below the root is its key. A put writes a temporary file in root/~tmp, syncs it, and
// then makes it appear under its name in one step: rename(2) for Put, link(2) for PutIfAbsent, which fails where a
// name exists and so has exactly one winner. Then the directory is synced. So a file under a key is always whole, also
// after a power loss, and a put that returned is on the disk.
//
// '~' is in no key, so the temporary directory can be no object and List never shows it.
//
// Warnings:
//   - All writers must see one file system with working link(2); a directory on NFS is as good as its server.
//   - A directory made for a key stays when its last object goes.
//   - Whoever can write to the directory can damage objects; the chunk hashes find that out.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"wsfs/blobs"
)

const (
	tempDir  = "~tmp"
	staleAge = 24 * time.Hour // a temporary file this old belongs to a writer that is gone
	piece    = 1 << 20        // bytes written between two looks at the context
)

// Options say what a path does not.
type Options struct {
	// Create makes the root (0700) if it does not exist.
	Create bool
	// Now is the clock that the age of temporary files is measured by; nil for time.Now.
	Now func() time.Time
}

// Store is a blobs.Store in one directory.
type Store struct {
	root string
	url  string
}

var _ blobs.Store = (*Store)(nil)

// Open returns the store in loc's directory and sweeps temporary files that dead writers left. A missing directory
// is blobs.ErrNoStore unless o.Create asks for it.
func Open(ctx context.Context, loc *blobs.Location, o Options) (*Store, error) {
	s := &Store{root: loc.Path, url: loc.String()}
	if o.Create {
		if err := makeRoot(s.root); err != nil {
			return nil, s.fail("open", s.root, err)
		}
	}
	info, err := os.Stat(s.root)
	if err != nil {
		return nil, s.fail("open", s.root, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open %s: %w: it is not a directory", s.root, blobs.ErrNoStore)
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	if err := s.sweep(ctx, now().Add(-staleAge)); err != nil {
		return nil, err
	}
	return s, nil
}

// makeRoot makes path with what is missing above it and syncs each new name into its parent.
func makeRoot(path string) error {
	err := os.Mkdir(path, 0o700)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(path))
	case errors.Is(err, fs.ErrExist):
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeRoot(filepath.Dir(path)); err != nil {
		return err
	}
	return makeRoot(path)
}

// sweep removes temporary files last written before cutoff. A store this process may only read is left alone.
func (s *Store) sweep(ctx context.Context, cutoff time.Time) error {
	entries, err := os.ReadDir(filepath.Join(s.root, tempDir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return s.fail("sweep", tempDir, err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sweep %s: %w", tempDir, err)
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // its writer is done
		}
		if err == nil && info.ModTime().Before(cutoff) {
			err = os.Remove(filepath.Join(s.root, tempDir, e.Name()))
		}
		if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.fail("sweep", filepath.Join(tempDir, e.Name()), err)
		}
	}
	return nil
}

// fail maps an error of the file system to the contract's. A name that is missing is ErrNotExist only while the root
// is there. The syscall's error stays in the chain: errors.Is(err, syscall.ENOSPC) works.
func (s *Store) fail(op, key string, err error) error {
	doing := op + " " + key
	is := func(errs ...error) bool {
		for _, e := range errs {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(context.Canceled, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", doing, err)
	case is(fs.ErrNotExist, syscall.ENOTDIR):
		if _, statErr := os.Stat(s.root); errors.Is(statErr, fs.ErrNotExist) || errors.Is(statErr, syscall.ENOTDIR) {
			return fmt.Errorf("%s: %w: no directory %s", doing, blobs.ErrNoStore, s.root)
		}
		return fmt.Errorf("%s: %w", doing, blobs.ErrNotExist)
	case is(fs.ErrPermission, syscall.EROFS):
		return fmt.Errorf("%s: %w: %w", doing, blobs.ErrDenied, err)
	case is(syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EAGAIN, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EIO):
		return fmt.Errorf("%s: %w: %w", doing, blobs.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// begin checks what every operation on one key checks, and returns the key's path.
func (s *Store) begin(ctx context.Context, op, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("%s %s: %w", op, key, err)
	}
	if err := blobs.CheckKey(key); err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return filepath.Join(s.root, key), nil
}

// Delete implements blobs.Store. The removal is synced: what is deleted stays deleted.
func (s *Store) Delete(ctx context.Context, key string) error {
	path, err := s.begin(ctx, "delete", key)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return nil // a prefix of other keys, not an object
	}
	if err = os.Remove(path); err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		if err = s.fail("delete", key, err); errors.Is(err, blobs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// Presign implements blobs.Store; a plain directory has no server, so it is ErrUnsupported.
func (s *Store) Presign(context.Context, string, time.Duration, blobs.PresignOptions) (*url.URL, error) {
	return nil, fmt.Errorf("presign on %s: %w", s.url, blobs.ErrUnsupported)
}

// URL implements blobs.Store.
func (s *Store) URL() string { return s.url }

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that does not sync directories has nothing to lose there
	}
	return errors.Join(err, d.Close())
}

// parent is the key of the directory that holds key; empty for the root.
func parent(key string) string {
	return key[:max(0, strings.LastIndexByte(key, '/'))]
}

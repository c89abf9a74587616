package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"wsfs/blobs"
)

// Get implements blobs.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	path, err := s.begin(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, offset)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, s.fail("get", key, err)
	}
	defer f.Close() // only read: its error can lose nothing
	info, err := f.Stat()
	if err != nil {
		return nil, s.fail("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("get %s: %w", key, blobs.ErrNotExist) // a prefix of other keys, not an object
	}
	// A file under a key never changes; a Put replaces it by another one, and this descriptor keeps the old.
	left := max(info.Size()-offset, 0)
	if length < 0 || length > left {
		length = left
	}
	body := make([]byte, length)
	for at := int64(0); at < length; at += piece {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("get %s: %w", key, err)
		}
		if _, err := f.ReadAt(body[at:min(at+piece, length)], offset+at); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, s.fail("get", key, err)
		}
	}
	return body, nil
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	path, err := s.begin(ctx, "put", key)
	if err != nil {
		return err
	}
	return s.store(ctx, "put", key, path, body, os.Rename)
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	const op = "put if absent"
	path, err := s.begin(ctx, op, key)
	if err != nil {
		return err
	}
	// A look before writing 16 MiB for nothing; the race is decided by link(2) below.
	if _, err := os.Lstat(path); err == nil {
		return s.exists(op, key, path)
	}
	err = s.store(ctx, op, key, path, body, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return s.exists(op, key, path)
	}
	return err
}

func (s *Store) exists(op, key, path string) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s: the key is a directory of other keys", op, key)
	}
	return fmt.Errorf("%s %s: %w", op, key, blobs.ErrExist)
}

// store writes body to a synced temporary file and lets name (rename or link) give it its key. Steps:
//
//  1. write and sync the temporary file: from here on the body survives a power loss
//  2. name it, making directories that are missing: from here on Get sees it, whole
//  3. sync its directory: from here on the name survives too
//
// A failure or a cancellation before 2 leaves nothing; after 2 the put has happened.
func (s *Store) store(ctx context.Context, op, key, path string, body []byte, name func(from, to string) error) error {
	temp, err := s.writeTemp(ctx, body)
	if err != nil {
		return s.fail(op, key, err)
	}
	err = ctx.Err()
	if err == nil {
		err = name(temp, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.makeParents(parent(key)); err == nil {
			err = name(temp, path)
		}
	}
	named := err == nil
	if named {
		err = syncDir(filepath.Dir(path))
	}
	// After a rename the temporary name is gone already.
	if rm := os.Remove(temp); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	switch {
	case err == nil:
		return nil
	case !named && errors.Is(err, fs.ErrExist):
		if info, statErr := os.Lstat(path); statErr == nil && info.IsDir() {
			return fmt.Errorf("%s %s: the key is a directory of other keys", op, key)
		}
		return fmt.Errorf("%s %s: %w", op, key, blobs.ErrExist)
	}
	err = s.fail(op, key, err)
	if errors.Is(err, blobs.ErrNotExist) {
		return fmt.Errorf("%s %s: a part of the key's path is an object", op, key)
	}
	return err
}

// writeTemp writes a synced temporary file and returns its path. On an error the file is gone.
func (s *Store) writeTemp(ctx context.Context, body []byte) (string, error) {
	path := filepath.Join(s.root, tempDir, rand.Text())
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		// Mkdir, not MkdirAll: a missing root is a missing store and must not come back empty.
		if err = os.Mkdir(filepath.Join(s.root, tempDir), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err != nil {
		return "", err
	}
	err = write(ctx, f, body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

func write(ctx context.Context, f *os.File, body []byte) error {
	for len(body) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.Write(body[:min(piece, len(body))])
		if err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

// makeParents makes the directory for dir's keys, one level at a time from the root, which must exist, and syncs each
// parent: a name in a directory that is itself not durable would be lost with it. A directory somebody else has just
// made is synced too, since that somebody may not have got to it yet.
func (s *Store) makeParents(dir string) error {
	if dir == "" {
		return nil
	}
	path := filepath.Join(s.root, dir)
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) && parent(dir) != "" {
		if err = s.makeParents(parent(dir)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Package disk makes file systems of a known kind to measure and test on: an Image is a sparse file with a journaled
// ext4 in it, mounted through a loop device. It needs root, mkfs.ext4 and a loop device.
//
// Why images: bulk deletes on the machine's own disk slow everything that follows on it, and a root file system without
// a journal is not what people run. An image is deleted as one file.
package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// commandTimeout bounds each of mkfs, mount and umount.
const commandTimeout = 2 * time.Minute

// Image is a mounted ext4 image.
type Image struct {
	Dir  string // where it is mounted
	file string
}

// NewExt4 makes dir/name.img, a sparse file of size bytes with a journaled ext4, and mounts it on dir/name. Inode
// tables and journal are initialised before it returns, so that no background work of the kernel disturbs a measurement.
func NewExt4(ctx context.Context, dir, name string, size int64) (*Image, error) {
	m := &Image{Dir: filepath.Join(dir, name), file: filepath.Join(dir, name+".img")}
	if err := m.create(ctx, size); err != nil {
		return nil, fmt.Errorf("make ext4 image %s: %w", m.file, errors.Join(err, m.Close()))
	}
	return m, nil
}

func (m *Image) create(ctx context.Context, size int64) error {
	f, err := os.OpenFile(m.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		return err
	}
	err = run(ctx, "mkfs.ext4", "-q", "-F", "-i", "8192", "-O", "has_journal",
		"-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", m.file)
	if err != nil {
		return err
	}
	return run(ctx, "mount", "-o", "loop", m.file, m.Dir)
}

// Close unmounts the image and deletes it. If something still uses it, it is detached lazily and the error says so.
func (m *Image) Close() error {
	// Cleaning up must not be cut short by the context whose end it may be following.
	ctx := context.Background()
	var failed error
	if mounted(m.Dir) {
		if err := m.unmount(ctx); err != nil {
			failed = errors.Join(err, run(ctx, "umount", "-l", m.Dir))
		}
	}
	for _, path := range []string{m.Dir, m.file} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// unmount gives processes that are just ending a moment to let go.
func (m *Image) unmount(ctx context.Context) error {
	var err error
	for range 20 {
		if err = run(ctx, "umount", m.Dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// Sync writes everything of this image back.
func (m *Image) Sync() error {
	f, err := os.Open(m.Dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: m.Dir, Err: err}
	}
	return nil
}

// mounted tells whether dir is the root of another file system than its parent.
func mounted(dir string) bool {
	var st, parent unix.Stat_t
	if unix.Lstat(dir, &st) != nil || unix.Lstat(filepath.Dir(dir), &parent) != nil {
		return false
	}
	return st.Dev != parent.Dev
}

func run(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

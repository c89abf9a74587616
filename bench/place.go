package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/e2e/disk"
)

// place is where rows are measured.
type place interface {
	name() string // the column's head
	dir() string  // an empty directory
	// settle waits until everything written is durable and nothing goes on in the background.
	settle(ctx context.Context) error
	// counts tells whether requests has something to tell.
	counts() bool
	// requests returns the FUSE requests served so far by name, nil if the place does not count.
	requests(ctx context.Context) (map[string]uint64, error)
	close() error
}

// directory is a place in a file system that the kernel serves itself.
type directory struct {
	label string
	path  string
	clean func() error
}

func (d *directory) name() string { return d.label }
func (d *directory) dir() string  { return d.path }
func (d *directory) counts() bool { return false }
func (d *directory) close() error { return d.clean() }

func (d *directory) settle(context.Context) error { return syncFS(d.path) }

func (d *directory) requests(context.Context) (map[string]uint64, error) { return nil, nil }

func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: path, Err: err}
	}
	return nil
}

// makePlaces makes the places that the options ask for, ext4 first. On an error it returns those already made.
func makePlaces(ctx context.Context, o options, work string) ([]place, error) {
	var places []place
	ext4, err := makeDirectory(ctx, o, work, "ext4")
	if err != nil {
		return places, err
	}
	places = append(places, ext4)
	cache, err := makeDirectory(ctx, o, work, "twin")
	if err != nil {
		return places, err
	}
	w, err := mountWorkspace(ctx, o, work, cache)
	if err != nil {
		return places, errors.Join(err, cache.close())
	}
	places = append(places, w)
	if o.loopback {
		l, err := mountLoopback(ctx, work, ext4.dir())
		if err != nil {
			return places, err
		}
		places = append(places, l)
	}
	if o.tmpfs {
		t, err := mountTmpfs(work)
		if err != nil {
			return places, err
		}
		places = append(places, t)
	}
	return places, nil
}

// makeDirectory makes an ext4 image, or a plain directory with --plain.
func makeDirectory(ctx context.Context, o options, work, name string) (*directory, error) {
	if o.plain {
		path := filepath.Join(work, name)
		return &directory{label: "plain", path: path, clean: func() error { return nil }}, os.Mkdir(path, 0o755)
	}
	image, err := disk.NewExt4(ctx, work, name, o.imageGiB<<30)
	if err != nil {
		return nil, err
	}
	return &directory{label: name, path: image.Dir, clean: image.Close}, nil
}

func mountTmpfs(work string) (*directory, error) {
	path := filepath.Join(work, "tmpfs")
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=8g"); err != nil {
		return nil, fmt.Errorf("mount tmpfs on %s: %w", path, err)
	}
	return &directory{label: "tmpfs", path: path, clean: func() error { return unmount(path) }}, nil
}

// unmount takes a mount away, lazily if it must.
func unmount(path string) error {
	var err error
	for range 50 {
		if err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err == nil || errors.Is(err, unix.EINVAL) {
			return nil // EINVAL: not mounted any more
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(fmt.Errorf("unmount %s: %w", path, err), unix.Unmount(path, unix.MNT_DETACH))
}

// waitMounted waits until path is the root of another file system.
func waitMounted(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var st, parent unix.Stat_t
		if unix.Stat(path, &st) == nil && unix.Stat(filepath.Dir(path), &parent) == nil && st.Dev != parent.Dev {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the mount on %s: %w", path, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

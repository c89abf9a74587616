package fusefs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	devFuse   = "/dev/fuse"
	readAhead = 2048 // KiB
)

// checkDevice tells clearly why FUSE cannot work here at all.
func checkDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s: %w: this kernel or container has no FUSE (load the module fuse, or give the container the device)", path, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: this process may not use FUSE (a container needs the device in its cgroup)", path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// mountDirect opens /dev/fuse and mounts it on dir by mount(2). The descriptor is closed on exec: a child that inherited it
// would keep the mount alive, and unanswered, after our death. It does not leave that to go-fuse, which forgets it here.
func mountDirect(dir string, o Options, maxRead int) (fd int, err error) {
	fd, err = unix.Open(devFuse, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", devFuse, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,max_read=%d", fd, os.Geteuid(), os.Getegid(), maxRead)
	if !o.NoPermissions {
		options += ",default_permissions"
	}
	if o.AllowOther {
		options += ",allow_other"
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if o.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(o.FSName, dir, "fuse.wsfs", flags, options); err != nil {
		return -1, errors.Join(fmt.Errorf("mount(2) on %s: %w", dir, err), closeFD(fd))
	}
	return fd, nil
}

func closeFD(fd int) error {
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close %s: %w", devFuse, err)
	}
	return nil
}

// mountOptions are what go-fuse negotiates with the kernel.
func mountOptions(o Options, passthrough bool) *fuse.MountOptions {
	m := &fuse.MountOptions{
		AllowOther: o.AllowOther,
		FsName:     o.FSName,
		Name:       "wsfs",
		Options:    []string{"default_permissions"}, // of fusermount3, which NoPermissions does not go with

		MaxBackground:            128,
		CongestionThreshold:      96,
		MaxWrite:                 1 << 20,
		EnableSymlinkCaching:     true,
		ExplicitDataCacheControl: true,
		DisableSplice:            true, // a READ is one copy and one writev; a pipe would cost two more system calls
		DisableXAttrs:            o.NoXattrs,
		MaxStackDepth:            stackDepth(o.CacheDir),
		Debug:                    o.Debug,
		Logger:                   slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_NO_OPENDIR_SUPPORT |
			fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_EXPORT_SUPPORT,
		// NO_OPEN_SUPPORT would let an ENOSYS from OPEN switch it off; AUTO_INVAL_DATA costs a GETATTR per read.
		// ASYNC_DIO is not asked for: a program in a direct read could not be killed while we wait for the store.
		DisabledCapabilities: fuse.CAP_AUTO_INVAL_DATA | fuse.CAP_NO_OPEN_SUPPORT,
	}
	if o.ReadOnly {
		m.Options = append(m.Options, "ro")
	}
	if !passthrough {
		m.DisabledCapabilities |= fuse.CAP_PASSTHROUGH
		if !o.ReadOnly { // a follower's files change under it: the kernel must believe our sizes
			m.ExtraCapabilities |= fuse.CAP_WRITEBACK_CACHE
		}
	}
	return m
}

// tuneCache gives the mount on dir a larger read-ahead than the 128 KiB a FUSE file system starts with, and frees write-back
// from the one per cent of memory a FUSE file system may fill with dirty pages. Without privilege it changes nothing.
func tuneCache(dir string) error {
	dev, err := deviceOf(dir)
	if err != nil {
		return err
	}
	bdi := filepath.Join("/sys/class/bdi", dev)
	var errs []error
	for _, set := range [...]struct{ file, value string }{
		{"read_ahead_kb", fmt.Sprint(readAhead)}, {"strict_limit", "0"}, {"max_ratio", "100"},
	} {
		// O_WRONLY without O_CREAT: sysfs has the file or the kernel is too old for it.
		f, err := os.OpenFile(filepath.Join(bdi, set.file), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(set.value)
			err = errors.Join(err, f.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deviceOf returns the device number (major:minor) of the topmost mount on dir, without touching it.
func deviceOf(dir string) (string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	want := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`, "#", `\043`).Replace(dir)
	dev := ""
	for line := range strings.Lines(string(info)) {
		// 36 35 0:52 / /mnt rw,nosuid - fuse.wsfs wsfs rw,user_id=0
		if f := strings.Fields(line); len(f) > 4 && f[4] == want {
			dev = f[2]
		}
	}
	if dev == "" {
		return "", fmt.Errorf("%s is not in /proc/self/mountinfo", dir)
	}
	return dev, nil
}

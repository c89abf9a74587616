package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MountPoint is one line of /proc/self/mountinfo.
type MountPoint struct {
	Dir    string
	Type   string // "fuse.wsfs" for ours
	Source string
}

// Mounts returns the mounts this process sees, in the order they were made.
func Mounts() ([]MountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []MountPoint
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 {
			return nil, fmt.Errorf("/proc/self/mountinfo: malformed line %q", lines.Text())
		}
		all = append(all, MountPoint{Dir: unescape(l[4]), Type: r[0], Source: unescape(r[1])})
	}
	return all, lines.Err()
}

// unescape undoes the octal escapes of /proc.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var c byte
		if s[i] == '\\' && i+3 < len(s) {
			if _, err := fmt.Sscanf(s[i+1:i+4], "%03o", &c); err == nil {
				b.WriteByte(c)
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// MountAt returns what is mounted on dir, topmost; nil if nothing is.
func MountAt(dir string) (*MountPoint, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Dir == dir {
			return &all[i], nil
		}
	}
	return nil, nil
}

// MountType is how the kernel calls our mounts.
const MountType = "fuse.wsfs"

// PrepareMountPoint checks that dir can be mounted on and returns its absolute path without links. A dead mount of
// ours on it (its daemon is gone) is detached first. Errors: missing, not a directory, mounted already, not empty.
func PrepareMountPoint(dir string, log *slog.Logger) (string, error) {
	abs, err := realDir(dir)
	if err != nil {
		return "", err
	}
	for {
		at, err := MountAt(abs)
		if err != nil {
			return "", err
		}
		if at == nil || at.Type != MountType {
			break
		}
		if !Dead(abs) {
			return "", InUsef("mount point %s: %s is mounted there already; unmount it with: wsfs umount %s", dir, at.Source, abs)
		}
		log.Warn("repairing a dead mount point: its daemon is gone", "dir", abs, "source", at.Source)
		if err := Detach(abs); err != nil {
			return "", fmt.Errorf("mount point %s: detaching a dead mount: %w", dir, err)
		}
	}
	fi, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("mount point: %w", err)
	}
	if !fi.IsDir() {
		return "", Usagef("mount point %s is not a directory", dir)
	}
	names, err := os.ReadDir(abs)
	if err != nil {
		return "", fmt.Errorf("mount point: %w", err)
	}
	if len(names) > 0 {
		return "", InUsef("mount point %s is not empty (it holds %q); use an empty directory", dir, names[0].Name())
	}
	return abs, nil
}

// Dead tells whether the daemon of a mount of ours is gone. It asks for the file system's state, which no kernel answers
// from a cache; a daemon that does not answer within two seconds is alive.
func Dead(dir string) bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(dir, &st)
	}()
	select {
	case err := <-answer:
		return errors.Is(err, syscall.ENOTCONN)
	case <-time.After(2 * time.Second):
		return false
	}
}

// realDir resolves links in all but the last component, which may be a dead mount that cannot be looked at.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	switch {
	case err == nil:
		return real, nil
	case errors.Is(err, syscall.ENOTCONN): // a dead mount
		parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
		if err != nil {
			return "", fmt.Errorf("mount point: %w", err)
		}
		return filepath.Join(parent, filepath.Base(abs)), nil
	case errors.Is(err, fs.ErrNotExist):
		return "", NotFoundf("mount point %s does not exist; create it with: mkdir -p %s", dir, abs)
	}
	return "", fmt.Errorf("mount point: %w", err)
}

// RealDir is the path without links under which a mount on dir is registered.
func RealDir(dir string) (string, error) { return realDir(dir) }

// Detach unmounts dir lazily: at once, whoever uses it.
func Detach(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if !errors.Is(err, syscall.EPERM) {
		return err
	}
	out, err := exec.Command("fusermount3", "-u", "-z", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fusermount3 -u -z: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

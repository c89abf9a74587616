package blobtest

import (
	"context"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The servers and the versions the suite was written against.
const (
	versitygwModule = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
	rcloneModule    = "github.com/rclone/rclone@v1.76.0"
	installTimeout  = 20 * time.Minute // rclone is large and two cores are few
)

// tool returns the path of a server's program: from $WSFS_TOOLS (or the user's cache directory), the PATH or Go's own
// bin directory, and otherwise freshly installed into the first of these.
func tool(name, module string) (string, error) {
	cache := os.Getenv("WSFS_TOOLS")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a place for %s (set WSFS_TOOLS): %w", name, err)
		}
		cache = filepath.Join(user, "wsfs-tools")
	}
	if path, ok := installed(cache, name); ok {
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range append([]string{os.Getenv("GOBIN")}, gopathBins()...) {
		if path, ok := installed(dir, name); ok {
			return path, nil
		}
	}
	return install(cache, name, module)
}

func gopathBins() []string {
	var bins []string
	for _, dir := range filepath.SplitList(build.Default.GOPATH) {
		bins = append(bins, filepath.Join(dir, "bin"))
	}
	return bins
}

func installed(dir, name string) (string, bool) {
	if dir == "" {
		return "", false
	}
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// install builds the program into cache. Test binaries of several packages run at once: a lock file makes one of them
// build and the others wait. `go install` puts the program in place by a rename, so nobody runs half of it.
func install(cache, name, module string) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the tools directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("lock the tools directory: %w", err)
	}
	defer lock.Close() // gives the lock back
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock the tools directory: %w", err)
	}
	if path, ok := installed(cache, name); ok {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", module)
	cmd.Dir = cache // outside any module
	cmd.Env = append(os.Environ(), "GOBIN="+cache, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w: %s", module, err, out)
	}
	path, ok := installed(cache, name)
	if !ok {
		return "", fmt.Errorf("go install %s left no %s in %s", module, name, cache)
	}
	return path, nil
}

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/internal/cli"
)

// bin is where TestMain built the commands.
var bin string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "wsfs-cmd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	args := []string{"build"}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "-o", dir+"/", "wsfs/cmd/wsfs", "wsfs/cmd/wsctl")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the commands: %v\n%s", err, out)
		return 1
	}
	if err := os.Symlink("wsfs", filepath.Join(dir, "mount.wsfs")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// host is one user's environment: everything the commands find by default is below dir.
type host struct {
	t   *testing.T
	dir string
	env []string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, dir: dir}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "XDG_") && !strings.HasPrefix(name, "WSFS_") && !strings.HasPrefix(name, "AWS_") && name != "HOME" {
			h.env = append(h.env, e)
		}
	}
	h.env = append(h.env, "HOME="+dir, "WSFS_RUNTIME_DIR="+filepath.Join(dir, "run"), "AWS_EC2_METADATA_DISABLED=true")
	t.Cleanup(h.clean)
	return h
}

// clean ends every daemon the test left and unmounts what is left of it.
func (h *host) clean() {
	for _, l := range h.live() {
		if l.Mount != "" {
			_ = unix.Unmount(l.Mount, unix.MNT_DETACH) // often unmounted already
		}
		if p, err := os.FindProcess(l.PID); err == nil && l.Running() {
			if h.t.Failed() {
				b, err := os.ReadFile(filepath.Join(l.CacheDir, "log"))
				h.t.Logf("log of daemon %d: %s %v", l.PID, b, err)
			}
			_ = p.Kill() // it may have ended meanwhile
			h.await("the daemon's death", func() bool { return !l.Running() })
		}
	}
	all, err := cli.Mounts()
	if err != nil {
		h.t.Error(err)
	}
	for _, m := range all {
		if strings.HasPrefix(m.Dir, h.dir+"/") {
			if err := unix.Unmount(m.Dir, unix.MNT_DETACH); err != nil {
				h.t.Errorf("unmounting %s: %v", m.Dir, err)
			}
		}
	}
}

// live reads the registry as it is.
func (h *host) live() []cli.Live {
	h.t.Helper()
	files, err := filepath.Glob(filepath.Join(h.dir, "run", "*.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	var all []cli.Live
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var l cli.Live
		if err == nil {
			err = json.Unmarshal(b, &l)
		}
		if err != nil {
			h.t.Logf("registry: %s: %v", f, err)
			continue
		}
		all = append(all, l)
	}
	return all
}

func (h *host) await(what string, ok func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// result is how a command ended.
type result struct {
	cmd            string
	code           int
	stdout, stderr string
	took           time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("%s: exit code %d after %v\nstdout: %.2000s\nstderr: %.2000s", r.cmd, r.code, r.took, r.stdout, r.stderr)
}

// run runs a command for at most a minute.
func (h *host) run(name string, args ...string) result {
	h.t.Helper()
	return h.runIn(h.dir, nil, name, args...)
}

func (h *host) runIn(dir string, stdin []byte, name string, args ...string) result {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Env, c.Dir = h.env, dir
	c.WaitDelay = 5 * time.Second
	c.Stdin = bytes.NewReader(stdin)
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	start := time.Now()
	err := c.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		h.t.Fatalf("%s %q: %v", name, args, err)
	}
	return result{cmd: fmt.Sprintf("%s %q", name, args), code: c.ProcessState.ExitCode(), stdout: out.String(), stderr: errOut.String(), took: time.Since(start)}
}

// ok runs a command that must succeed and returns its stdout.
func (h *host) ok(name string, args ...string) string {
	h.t.Helper()
	r := h.run(name, args...)
	if r.code != 0 {
		h.t.Fatal(r)
	}
	return r.stdout
}

// mount mounts on a fresh directory.
func (h *host) mount(target string, flags ...string) string {
	h.t.Helper()
	dir := h.mkdir("mnt-" + strings.Map(func(r rune) rune {
		if strings.ContainsRune("/:#", r) {
			return '_'
		}
		return r
	}, filepath.Base(target)))
	out := h.ok("wsfs", append([]string{"mount", target, dir}, flags...)...)
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, dir) {
		h.t.Errorf("mount printed %q, want one line naming %s", out, dir)
	}
	return dir
}

func (h *host) mkdir(name string) string {
	h.t.Helper()
	dir, err := os.MkdirTemp(h.dir, name+"-")
	if err != nil {
		h.t.Fatal(err)
	}
	return dir
}

func (h *host) write(path, content string) {
	h.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) wantFile(path, content string) {
	h.t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != content {
		h.t.Errorf("%s: %.100q, %v; want %.100q", path, b, err, content)
	}
}

// daemon returns the one live daemon on a mount point.
func (h *host) daemon(dir string) cli.Live {
	h.t.Helper()
	for _, l := range h.live() {
		if l.Mount == dir {
			return l
		}
	}
	h.t.Fatalf("no daemon registered for %s: %+v", dir, h.live())
	return cli.Live{}
}

func (h *host) kill(l cli.Live, sig syscall.Signal) {
	h.t.Helper()
	if err := syscall.Kill(l.PID, sig); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) loseCache() {
	h.t.Helper()
	if err := os.RemoveAll(filepath.Join(h.dir, ".cache")); err != nil {
		h.t.Fatal(err)
	}
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/e2e/disk"
)

// Time limits. Nothing here may hang the run.
const (
	quick = 30 * time.Second // a command that has nothing to wait for
	slow  = 10 * time.Minute // one that moves the whole tree
)

// workDir is a directory for one test on a journaled ext4 of its own: what the test makes and deletes must not slow
// down, nor be slowed down by, the machine's own disk.
func workDir(t *testing.T) string {
	t.Helper()
	image, err := disk.NewExt4(t.Context(), t.TempDir(), "disk", 64<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Close(); err != nil {
			t.Error(err)
		}
	})
	return image.Dir
}

// host is a machine as far as wsfs can tell: homes, caches and runtime files of its own.
type host struct {
	t     *testing.T
	dir   string
	env   []string
	shown bool // the logs, after a failure
}

// newHost makes a host below dir that can reach the store.
func newHost(t *testing.T, dir, name string, s *store) *host {
	t.Helper()
	h := &host{t: t, dir: filepath.Join(dir, name)}
	for _, sub := range []string{"run", "cache", "data", "mnt"} {
		if err := os.MkdirAll(filepath.Join(h.dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range os.Environ() {
		if key, _, _ := strings.Cut(v, "="); !strings.HasPrefix(key, "AWS_") && !strings.HasPrefix(key, "WSFS_") {
			h.env = append(h.env, v)
		}
	}
	h.env = append(h.env, "HOME="+h.dir, "XDG_RUNTIME_DIR="+h.dir+"/run", "WSFS_RUNTIME_DIR="+h.dir+"/run", "XDG_CACHE_HOME="+h.dir+"/cache",
		"XDG_DATA_HOME="+h.dir+"/data", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if s != nil {
		h.env = append(h.env, s.env...)
	}
	return h
}

// loseCache deletes the host's cache directories, as losing the machine does.
func (h *host) loseCache() {
	h.t.Helper()
	cache := filepath.Join(h.dir, "cache")
	if err := errors.Join(os.RemoveAll(cache), os.Mkdir(cache, 0o700)); err != nil {
		h.t.Fatal(err)
	}
}

// showLogs prints the ends of the daemons' logs, for a test that failed.
func (h *host) showLogs() {
	if h.shown {
		return
	}
	h.shown = true
	logs, err := filepath.Glob(filepath.Join(h.dir, "cache", "wsfs", "*", "*", "log"))
	if err != nil {
		h.t.Error(err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		h.t.Logf("%s: %v\n%s", name, err, last(string(text)))
	}
}

// outcome is how a command ended.
type outcome struct {
	code           int // -1: killed, by us if it took too long
	stdout, stderr string
	took           time.Duration
}

// run runs a program on the host with a time limit and in a process group of its own.
func (h *host) run(limit time.Duration, dir, name string, args ...string) outcome {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, h.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	start := time.Now()
	err := cmd.Run()
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		o.code = -1
		o.stderr += fmt.Sprintf("\n[killed after %v]", limit)
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		h.t.Fatalf("%s: %v", name, err)
	}
	return o
}

// must runs a program that has to succeed and returns its standard output.
func (h *host) must(limit time.Duration, dir, name string, args ...string) string {
	h.t.Helper()
	o := h.run(limit, dir, name, args...)
	if o.code != 0 {
		h.t.Fatalf("%s %s: exit code %d after %v\n%s%s", filepath.Base(name), strings.Join(args, " "), o.code, o.took, last(o.stdout), last(o.stderr))
	}
	return o.stdout
}

// last is the end of a long output.
func last(s string) string {
	if len(s) > 3000 {
		return "..." + s[len(s)-3000:]
	}
	return s
}

// wsctl runs the control command, which has to succeed.
func (h *host) wsctl(limit time.Duration, args ...string) string {
	h.t.Helper()
	return h.must(limit, h.dir, built.wsctl, args...)
}

// mountPoint is a mounted workspace on a host.
type mountPoint struct {
	h     *host
	dir   string
	ready time.Duration // how long the mount command took
}

// mount mounts a workspace below the host's directory, in the background as users do.
func (h *host) mount(target, name string, flags ...string) *mountPoint {
	h.t.Helper()
	m := &mountPoint{h: h, dir: filepath.Join(h.dir, "mnt", name)}
	if err := os.MkdirAll(m.dir, 0o755); err != nil && !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, os.ErrExist) {
		h.t.Fatal(err)
	}
	h.t.Cleanup(m.cleanUp)
	start := time.Now()
	h.must(quick, h.dir, built.wsfs, append(append([]string{"mount"}, flags...), target, m.dir)...)
	m.ready = time.Since(start)
	if !isMounted(m.dir) {
		h.t.Fatalf("wsfs mount %s returned, but nothing is mounted on %s", target, m.dir)
	}
	return m
}

// umount unmounts and waits for the store.
func (m *mountPoint) umount() {
	m.h.t.Helper()
	m.h.must(slow, m.h.dir, built.wsfs, "umount", m.dir)
	if isMounted(m.dir) {
		m.h.t.Fatalf("wsfs umount returned, but %s is still mounted", m.dir)
	}
	m.awaitGone()
}

// awaitGone waits until no daemon serves the mount point.
func (m *mountPoint) awaitGone() {
	m.h.t.Helper()
	for end := time.Now().Add(quick); len(m.pids()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.h.t.Fatalf("the daemon of %s does not end", m.dir)
		}
	}
}

// cleanUp takes a mount away that a failed test left, and its daemon.
func (m *mountPoint) cleanUp() {
	if m.h.t.Failed() {
		m.h.showLogs()
	}
	if len(m.pids()) > 0 || isMounted(m.dir) {
		m.h.run(quick, "/", built.wsfs, "umount", "--no-wait", "--lazy", m.dir)
	}
	for isMounted(m.dir) {
		if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
			m.h.t.Errorf("unmount %s: %v", m.dir, err)
			break
		}
	}
	for end := time.Now().Add(5 * time.Second); len(m.pids()) > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	for _, pid := range m.pids() {
		m.h.t.Errorf("daemon %d of %s was left over", pid, m.dir)
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone meanwhile: fine
	}
}

// pids are the processes of the binary under test that were started for this mount point.
func (m *mountPoint) pids() []int {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		m.h.t.Fatal(err)
	}
	var pids []int
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink("/proc/" + p.Name() + "/exe")
		if err != nil || exe != built.wsfs {
			continue
		}
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line)+"\x00", "\x00"+m.dir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pid is the daemon's.
func (m *mountPoint) pid() int {
	m.h.t.Helper()
	pids := m.pids()
	if len(pids) != 1 {
		m.h.t.Fatalf("%d daemons for %s, want 1", len(pids), m.dir)
	}
	return pids[0]
}

// kill ends the daemon as a crash does and waits until it is gone.
func (m *mountPoint) kill() {
	m.h.t.Helper()
	if err := syscall.Kill(m.pid(), syscall.SIGKILL); err != nil {
		m.h.t.Fatal(err)
	}
	m.awaitGone()
}

// memory is the daemon's resident set, now and at its highest, in MiB.
func (m *mountPoint) memory() (now, peak int64) {
	m.h.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid()))
	if err != nil {
		m.h.t.Fatal(err)
	}
	field := func(name string) int64 {
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, name+":"); ok {
				n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					m.h.t.Fatal(err)
				}
				return n / 1024
			}
		}
		m.h.t.Fatalf("no %s in /proc/PID/status", name)
		return 0
	}
	return field("VmRSS"), field("VmHWM")
}

// status is what these tests read of `wsctl status --json`.
type status struct {
	ReadOnly   bool   `json:"read_only"`
	Fenced     string `json:"fenced"`
	DirtyBytes int64  `json:"dirty_bytes"`
	DirtyOps   uint64 `json:"dirty_ops"`
	Error      string `json:"error"`
	ErrorSince string `json:"error_since"`
	Uploaded   int64  `json:"uploaded"`
	Packs      int64  `json:"packs"`
	Commits    int64  `json:"commits"`
	Head       struct {
		Number uint64 `json:"number"`
	} `json:"head"`
}

func (m *mountPoint) status() status {
	m.h.t.Helper()
	var s status
	text := m.h.wsctl(quick, "-w", m.dir, "status", "--json")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		m.h.t.Fatalf("decode the status: %v\n%s", err, text)
	}
	return s
}

// sync commits everything to the store.
func (m *mountPoint) sync() {
	m.h.t.Helper()
	m.h.wsctl(slow, "-w", m.dir, "sync")
}

// check wants a clean bill of health.
func (m *mountPoint) check() {
	m.h.t.Helper()
	m.h.wsctl(slow, "-w", m.dir, "check")
}

// isMounted asks the kernel's table: it must not touch a mount whose daemon may be dead.
func isMounted(dir string) bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && strings.Contains(string(mounts), " "+dir+" ")
}

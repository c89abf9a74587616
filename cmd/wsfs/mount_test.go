package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"wsfs/api"
	"wsfs/internal/cli"
)

// TestFirstMount is what a person does first: nothing is prepared, everything is made.
func TestFirstMount(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo")
	h.write(dir+"/hello", "world")
	for _, by := range []string{dir, dir + "/.", "demo"} {
		if out := h.ok("wsctl", "-w", by, "cat", "hello"); out != "world" {
			t.Errorf("-w %s: %q", by, out)
		}
	}
	if r := h.runIn(dir, nil, "wsctl", "ls"); r.stdout != "hello\n" {
		t.Error(r)
	}
	var st api.Status
	if err := json.Unmarshal([]byte(h.ok("wsctl", "-w", dir, "status", "--json")), &st); err != nil || st.Mount.Dir != dir || st.Workspace != "demo" || st.PID != h.daemon(dir).PID || st.Mount.Requests["CREATE"] != 1 {
		t.Errorf("status: %+v, %v", st, err)
	}
	h.ok("wsfs", "umount", dir)
	if h.ok("wsctl", "-w", "demo", "cat", "/hello") != "world" {
		t.Error("the file is gone after umount")
	}
	if len(h.live()) != 0 {
		t.Errorf("registered after umount: %+v", h.live())
	}
}

// TestUmountWaits: what was written just before umount is in the store when it returns.
func TestUmountWaits(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo", "--commit-interval=1h", "--commit-quiet=1h")
	body := strings.Repeat("0123456789abcdef", 1<<20)
	h.write(dir+"/big", body)
	h.ok("wsfs", "umount", dir)
	h.loseCache()
	if got := h.ok("wsctl", "-w", "demo", "cat", "big"); got != body {
		t.Errorf("from the store alone: %d bytes, want %d", len(got), len(body))
	}
}

// TestUmountNoWait leaves unsynced work in the cache directory, says so, and the next mount goes on with it.
func TestUmountNoWait(t *testing.T) {
	for _, flag := range []string{"--no-wait", "--timeout=1ns"} {
		h := newHost(t)
		dir := h.mount("demo", "--commit-interval=1h", "--commit-quiet=1h")
		h.write(dir+"/f", "unsynced")
		r := h.run("wsfs", "umount", flag, dir)
		if r.code != cli.ExitUnsynced || !strings.Contains(r.stderr, ".cache/wsfs") {
			t.Errorf("want exit code 7 naming the cache directory: %v", r)
		}
		dir = h.mount("demo")
		h.wantFile(dir+"/f", "unsynced")
		h.ok("wsfs", "umount", dir)
		h.loseCache()
		if got := h.ok("wsctl", "-w", "demo", "cat", "f"); got != "unsynced" {
			t.Errorf("%s: from the store after the second mount: %q", flag, got)
		}
	}
}

// TestDeadMountIsRepaired: after kill -9 the next mount frees the mount point, says so in its log, and has everything.
func TestDeadMountIsRepaired(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo", "--commit-interval=1h", "--commit-quiet=1h")
	h.write(dir+"/f", "written before the kill")
	if out, err := exec.Command("sync", dir+"/f").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l := h.daemon(dir)
	h.kill(l, syscall.SIGKILL)
	h.await("the daemon's death", func() bool { return !l.Running() })
	if _, err := os.ReadDir(dir); err == nil {
		t.Fatal("the mount point works without its daemon")
	}
	// A dead daemon's entry does not mislead: the command finds nobody there.
	if r := h.run("wsctl", "-w", dir, "ls"); r.code != cli.ExitNotFound {
		t.Error(r)
	}
	if len(h.live()) != 0 {
		t.Errorf("the stale entry stays: %+v", h.live())
	}
	r := h.run("wsfs", "mount", "demo", dir)
	if r.code != 0 || !strings.Contains(r.stderr, "repairing a dead mount point") {
		t.Fatal(r)
	}
	h.wantFile(dir+"/f", "written before the kill")
	h.ok("wsfs", "umount", dir)
}

// TestUmountOfDeadMount frees the mount point of a dead daemon.
func TestUmountOfDeadMount(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo")
	l := h.daemon(dir)
	h.kill(l, syscall.SIGKILL)
	h.await("the daemon's death", func() bool { return !l.Running() })
	if r := h.run("wsfs", "umount", dir); r.code != 0 || !strings.Contains(r.stderr, "had died") {
		t.Error(r)
	}
	if _, err := os.ReadDir(dir); err != nil {
		t.Error(err)
	}
}

// TestStaleRegistry: an entry whose pid lives on as another process is stale.
func TestStaleRegistry(t *testing.T) {
	h := newHost(t)
	run := filepath.Join(h.dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	entry := cli.Live{PID: os.Getpid(), Start: 1, Mount: h.dir + "/nowhere", Workspace: "demo", Store: "dir:///x", Socket: h.dir + "/nosock"}
	b, err := json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"1.json": string(b), "2.json": "{broken"} {
		h.write(filepath.Join(run, name), content)
	}
	dir := h.mount("demo")
	h.ok("wsctl", "-w", "demo", "status")
	if all := h.live(); len(all) != 1 || all[0].Mount != dir {
		t.Errorf("registry: %+v", all)
	}
	h.ok("wsfs", "umount", dir)
}

func TestSignals(t *testing.T) {
	h := newHost(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := h.mount("demo", "--commit-interval=1h", "--commit-quiet=1h")
		h.write(dir+"/f", sig.String())
		l := h.daemon(dir)
		h.kill(l, sig)
		h.await("the daemon's end", func() bool { return !l.Running() })
		if _, err := os.Stat(dir + "/f"); err == nil {
			t.Errorf("%v: still mounted", sig)
		}
		h.loseCache()
		if got := h.ok("wsctl", "-w", "demo", "cat", "f"); got != sig.String() {
			t.Errorf("%v: the store has %q", sig, got)
		}
	}
}

// TestForeground runs in the foreground until SIGTERM and tells systemd.
func TestForeground(t *testing.T) {
	h := newHost(t)
	socket := listenNotify(t, h.dir)
	dir := h.mkdir("mnt")
	c := exec.Command(filepath.Join(bin, "wsfs"), "mount", "--foreground", "demo", dir)
	c.Env = append(h.env, "NOTIFY_SOCKET="+socket.path)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	socket.expect(t, "READY=1")
	h.write(dir+"/f", "x")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	socket.expect(t, "STOPPING=1")
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "mounted on "+dir) {
		t.Errorf("stderr: %s", stderr.String())
	}
}

// TestBusyUmount: a mount in use stays, with a clear error; --lazy takes it anyway.
func TestBusyUmount(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo")
	f, err := os.Create(dir + "/held")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r := h.run("wsfs", "umount", dir); r.code != cli.ExitRefused || !strings.Contains(r.stderr, dir) {
		t.Error(r)
	}
	if _, err := f.WriteString("still works"); err != nil {
		t.Error(err)
	}
	h.wantFile(dir+"/held", "still works")
	h.ok("wsfs", "umount", "--lazy", dir)
	if _, err := os.Stat(dir + "/held"); err == nil {
		t.Error("still mounted after --lazy")
	}
	if got := h.ok("wsctl", "-w", "demo", "cat", "held"); got != "still works" {
		t.Errorf("the store has %q", got)
	}
}

// TestPlainUmount: umount(8) by somebody ends the daemon too, with everything committed.
func TestPlainUmount(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo", "--commit-interval=1h", "--commit-quiet=1h")
	h.write(dir+"/f", "x")
	l := h.daemon(dir)
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h.await("the daemon's end", func() bool { return !l.Running() })
	h.loseCache()
	if got := h.ok("wsctl", "-w", "demo", "cat", "f"); got != "x" {
		t.Errorf("the store has %q", got)
	}
}

// TestCommandsReachTheMount: a name that a program has found missing is there as soon as wsctl has put it, and other
// changes show at once too.
func TestCommandsReachTheMount(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo")
	src := h.mkdir("src")
	h.write(src+"/f", "one")
	for i := range 3 {
		name := fmt.Sprintf("f%d", i)
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Fatalf("%s exists", name)
		}
		h.ok("wsctl", "-w", dir, "put", src+"/f", name)
		h.wantFile(filepath.Join(dir, name), "one")
	}
	h.write(src+"/f", "a longer second")
	h.ok("wsctl", "-w", dir, "put", src+"/f", "f0")
	h.wantFile(dir+"/f0", "a longer second")
	h.ok("wsctl", "-w", dir, "mv", "f1", "g")
	h.ok("wsctl", "-w", dir, "rm", "f2")
	h.ok("wsctl", "-w", dir, "cp", "g", "h")
	h.ok("wsctl", "-w", dir, "mkdir", "-m", "0700", "d")
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, n := range []string{"d", "f0", "g", "h"} {
		want = append(want, filepath.Join(dir, n))
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("on the mount: %q, want %q", names, want)
	}
	h.ok("wsfs", "umount", dir)
}

// TestConcurrentCommands: many commands and a mount at once.
func TestConcurrentCommands(t *testing.T) {
	h := newHost(t)
	dir := h.mount("demo")
	src := h.mkdir("src")
	for i := range 50 {
		h.write(fmt.Sprintf("%s/f%d", src, i), strings.Repeat("x", i*100))
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			to := fmt.Sprintf("/put%d", i)
			for _, args := range [][]string{{"put", src, to}, {"ls", "-lR", "/"}, {"sync"}, {"get", to, filepath.Join(h.dir, fmt.Sprintf("got%d", i))}} {
				if r := h.run("wsctl", append([]string{"-w", dir}, args...)...); r.code != 0 {
					t.Error(r)
				}
			}
		})
		wg.Go(func() {
			for j := range 50 {
				name := fmt.Sprintf("%s/own-%d-%d", dir, i, j)
				if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 6 {
		for j := range 50 {
			h.wantFile(fmt.Sprintf("%s/got%d/f%d", h.dir, i, j), strings.Repeat("x", j*100))
		}
	}
	h.ok("wsctl", "-w", dir, "check", "--read-data")
	h.ok("wsfs", "umount", dir)
}

// TestCommandsWithoutDaemonQueue: commands that each open the workspace themselves wait for each other.
func TestCommandsWithoutDaemonQueue(t *testing.T) {
	h := newHost(t)
	h.ok("wsctl", "-w", "demo", "mkdir", "/d")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if r := h.runIn(h.dir, []byte(fmt.Sprint(i)), "wsctl", "-w", "demo", "put", "-", fmt.Sprintf("/d/%d", i)); r.code != 0 {
				t.Error(r)
			}
		})
	}
	wg.Wait()
	if got := h.ok("wsctl", "-w", "demo", "ls", "/d"); got != "0\n1\n2\n3\n" {
		t.Errorf("left: %q", got)
	}
}

// TestSecondWriter: a workspace that another host writes is refused, naming it; --read-only follows, --takeover takes.
func TestSecondWriter(t *testing.T) {
	a, b := newHost(t), newHost(t)
	store := "dir://" + a.mkdir("store")
	a.ok("wsctl", "init", store+"#demo")
	dir := a.mount(store + "#demo")
	a.write(dir+"/f", "x")
	a.ok("wsctl", "-w", dir, "sync")
	mnt := b.mkdir("mnt")
	r := b.run("wsfs", "mount", store+"#demo", mnt)
	if r.code != cli.ExitRefused || !strings.Contains(r.stderr, fmt.Sprint(a.daemon(dir).PID)) || !strings.Contains(r.stderr, "--read-only") {
		t.Error(r)
	}
	if got := b.ok("wsctl", "-w", store+"#demo", "cat", "f"); got != "x" {
		t.Errorf("a reading command: %q", got)
	}
	if r := b.run("wsctl", "-w", store+"#demo", "mkdir", "/x"); r.code != cli.ExitRefused {
		t.Error(r)
	}
	ro := b.mount(store+"#demo", "--read-only")
	b.wantFile(ro+"/f", "x")
	if err := os.WriteFile(ro+"/g", nil, 0o644); err == nil {
		t.Error("wrote to a read-only mount")
	}
	if r := b.run("wsctl", "-w", ro, "mkdir", "/x"); r.code != cli.ExitRefused {
		t.Error(r)
	}
	if r := a.run("wsfs", "mount", store+"#demo", a.mkdir("mnt2")); r.code != cli.ExitRefused || !strings.Contains(r.stderr, dir) {
		t.Errorf("a second mount on the same host: %v", r)
	}
	b.ok("wsfs", "umount", ro)
	a.ok("wsfs", "umount", dir)
}

// TestServe keeps a workspace open without a mount.
func TestServe(t *testing.T) {
	h := newHost(t)
	c := exec.Command(filepath.Join(bin, "wsfs"), "serve", "demo")
	c.Env, c.Dir = h.env, h.dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	h.await("the daemon", func() bool { return len(h.live()) == 1 })
	h.ok("wsctl", "-w", "demo", "mkdir", "/d")
	if out := h.ok("wsctl", "-w", "demo", "status"); !strings.Contains(out, fmt.Sprintf("served by process %d", c.Process.Pid)) {
		t.Errorf("status: %s", out)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	h.ok("wsfs", "umount", "demo")
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v: %s", err, stderr.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("the daemon does not end")
	}
}

// TestMountHelper is what mount(8) does for a line in fstab.
func TestMountHelper(t *testing.T) {
	h := newHost(t)
	dir := h.mkdir("mnt")
	h.ok("mount.wsfs", "demo", dir, "-n", "-o", "rw,noauto,_netdev,cache_size=128M,commit_interval=2s,x-systemd.automount")
	st := h.ok("wsctl", "-w", dir, "status")
	if !strings.Contains(st, "cache_size=128M") || !strings.Contains(st, "commit_interval=2s") {
		t.Errorf("status: %s", st)
	}
	h.ok("wsfs", "umount", dir)
	h.ok("mount.wsfs", "-f", "demo", dir)
	if m, err := cli.MountAt(dir); err != nil || m != nil {
		t.Errorf("-f mounted: %v %v", m, err)
	}
	if r := h.run("mount.wsfs", "demo", dir, "-o", "warp=9"); r.code != cli.ExitUsage || !strings.Contains(r.stderr, "warp=9") {
		t.Error(r)
	}
	h.ok("mount.wsfs", "demo", dir, "-s", "-o", "warp=9,ro")
	if err := os.WriteFile(dir+"/f", nil, 0o644); err == nil {
		t.Error("-o ro is writable")
	}
	h.ok("wsfs", "umount", dir)
}

// TestMountSpeed: the second mount of a small workspace is quick, as people and scripts expect.
func TestMountSpeed(t *testing.T) {
	h := newHost(t)
	h.ok("wsfs", "umount", h.mount("demo"))
	dir := h.mkdir("mnt")
	r := h.run("wsfs", "mount", "demo", dir)
	if r.code != 0 || r.took > 5*time.Second {
		t.Error(r)
	}
	t.Logf("mount from the cache: %v", r.took)
	r = h.run("wsfs", "umount", dir)
	if r.code != 0 || r.took > 5*time.Second {
		t.Error(r)
	}
	t.Logf("umount: %v", r.took)
}

package e2e

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/e2e/fixture"
)

// TestKillDuringInstall kills the daemon in the middle of an npm install, several times. The next mount must repair the
// dead mount point; everything fsynced must be there; the workspace must be consistent, and in the end usable.
func TestKillDuringInstall(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("kill"))
	npmCache(t) // outside the timing
	m := h.mount(s.target("kill"), "kill")
	dead := 0
	for round := range size(3, 10) {
		pause := 500*time.Millisecond + time.Duration(rng.IntN(4000))*time.Millisecond
		t.Logf("round %d: kill after %v", round, pause)
		synced := filepath.Join(m.dir, "synced", string(rune('a'+round)))
		promised := installAndKill(t, m, synced, pause)
		if deadMount(m.dir) {
			dead++
		}
		m = h.mount(s.target("kill"), "kill")
		t.Logf("round %d: mounted again in %v; %d files were fsynced", round, m.ready.Round(time.Millisecond), promised)
		checkSynced(t, synced, promised)
		m.check()
		if t.Failed() {
			t.FailNow()
		}
	}
	if dead == 0 {
		t.Error("no kill left a dead mount point: nothing was repaired")
	}
	project := filepath.Join(m.dir, "project")
	installPackages(t, h, project)
	checkPackages(t, h, project)
	m.umount()
	h.loseCache()
	m = h.mount(s.target("kill"), "kill")
	checkPackages(t, h, project)
	m.check()
	m.umount()
}

// deadMount tells whether a mount is there that nobody serves. A stat would not do: the kernel still knows the root's
// attributes.
func deadMount(dir string) bool {
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(dir, &st), unix.ENOTCONN)
}

// TestUmountOfDeadMount wants `wsfs umount` to free a mount point whose daemon was killed, and to say where its work is.
func TestUmountOfDeadMount(t *testing.T) {
	dir := workDir(t)
	s := startDir(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("dead"))
	m := h.mount(s.target("dead"), "dead")
	file := filepath.Join(m.dir, "file")
	if err := writeAndSync(file, []byte("content")); err != nil {
		t.Fatal(err)
	}
	m.kill()
	for end := time.Now().Add(10 * time.Second); !deadMount(m.dir); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) { // the kernel ends the connection when the last of the process is gone
			t.Fatalf("%s is no dead mount after the kill", m.dir)
		}
	}
	if o := h.run(quick, "/", built.wsfs, "umount", m.dir); o.code != 0 || !strings.Contains(o.stderr, "cache") {
		t.Errorf("umount of a dead mount: exit code %d; want 0 and where the work is\n%s", o.code, o.stderr)
	}
	if isMounted(m.dir) {
		t.Errorf("%s is still mounted", m.dir)
	}
	m = h.mount(s.target("dead"), "dead")
	if have := readFile(t, file); have != "content" {
		t.Errorf("the fsynced file is %q", have)
	}
	m.umount()
}

// installAndKill runs an npm install and a writer that fsyncs, kills the daemon after a pause, and returns how many
// files fsync had promised.
func installAndKill(t *testing.T, m *mountPoint, synced string, pause time.Duration) (promised int) {
	t.Helper()
	dir := filepath.Join(m.dir, "project")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := project().Write(dir); err != nil {
		t.Fatal(err)
	}
	install := fixture.NPM(t.Context(), dir, npmCache(t), true)
	if err := install.Start(); err != nil {
		t.Fatal(err)
	}
	writer := startSynced(t, synced)
	time.Sleep(pause)
	m.kill()
	promised = writer.stop(t)
	if err := install.Wait(); err == nil {
		t.Log("the install had finished before the kill")
	}
	return promised
}

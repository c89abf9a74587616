package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		if _, err := os.Stat(m.dir); err != nil {
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

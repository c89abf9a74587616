package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOutage stops the store while a program writes: the work must go on, the status must say what is wrong, and
// everything must be in the store by itself after the store is back.
func TestOutage(t *testing.T) {
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("outage"))
	m := h.mount(s.target("outage"), "outage")
	writeSome(t, m.dir, "before")
	m.sync()
	stop(t, s)
	out := time.Now()
	worst := time.Duration(0)
	for i := 0; time.Since(out) < size(15*time.Second, 2*time.Minute); i++ {
		start := time.Now()
		writeSome(t, m.dir, fmt.Sprintf("during-%04d", i))
		worst = max(worst, time.Since(start))
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("slowest step during the outage: %v", worst.Round(time.Millisecond))
	st := m.status()
	if st.Error == "" || st.ErrorSince == "" || st.DirtyBytes == 0 {
		t.Errorf("status during the outage: %+v; want the error, since when, and the bytes behind", st)
	}
	start(t, s)
	back := time.Now()
	for st = m.status(); st.DirtyBytes > 0 || st.DirtyOps > 0 || st.Error != ""; st = m.status() {
		if time.Since(back) > 2*time.Minute {
			t.Fatalf("not caught up 2 minutes after the store came back: %+v", st)
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("caught up %v after the store was back", time.Since(back).Round(time.Millisecond))
	before := takeManifest(t, m.dir)
	m.umount()
	h.loseCache()
	m = h.mount(s.target("outage"), "outage")
	sameTree(t, before, takeManifest(t, m.dir))
	m.check()
	m.umount()
}

// TestUmountDuringOutage unmounts while the store is away: nothing may be dropped, the command must say that work is left
// behind, and the next mount must go on with it.
func TestUmountDuringOutage(t *testing.T) {
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("left"))
	m := h.mount(s.target("left"), "left")
	writeSome(t, m.dir, "before")
	m.sync()
	stop(t, s)
	for i := range 10 {
		writeSome(t, m.dir, fmt.Sprintf("during-%d", i))
	}
	before := takeManifest(t, m.dir)
	o := h.run(time.Minute, "/", built.wsfs, "umount", "--timeout", "2s", m.dir)
	if o.code != 7 || !strings.Contains(o.stderr, "cache") {
		t.Errorf("umount during the outage: exit code %d, want 7 and where the work is\n%s", o.code, o.stderr)
	}
	m.awaitGone()
	start(t, s)
	m = h.mount(s.target("left"), "left")
	sameTree(t, before, takeManifest(t, m.dir))
	m.umount()
	h.loseCache()
	m = h.mount(s.target("left"), "left")
	sameTree(t, before, takeManifest(t, m.dir))
	m.check()
	m.umount()
}

func stop(t *testing.T, s *store) {
	t.Helper()
	if err := s.server.Stop(); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, s *store) {
	t.Helper()
	if err := s.server.Start(); err != nil {
		t.Fatal(err)
	}
}

// writeSome makes a directory with files of several sizes, renames one and removes one.
func writeSome(t *testing.T, dir, name string) {
	t.Helper()
	at := func(file string) string { return filepath.Join(dir, name, file) }
	steps := []func() error{
		func() error { return os.Mkdir(filepath.Join(dir, name), 0o755) },
		func() error { return os.WriteFile(at("small"), []byte(name), 0o644) },
		func() error { return os.WriteFile(at("middle"), []byte(strings.Repeat(name, 5_000)), 0o644) },
		func() error { return os.WriteFile(at("large"), []byte(strings.Repeat(name+"!", 100_000)), 0o644) },
		func() error { return os.WriteFile(at("gone"), []byte(name), 0o644) },
		func() error { return os.Rename(at("small"), at("renamed")) },
		func() error { return os.Remove(at("gone")) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("%s, step %d: %v", name, i, err)
		}
	}
}

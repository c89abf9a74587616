package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wsfs/e2e/manifest"
)

// TestRoundTrip does real work on a mount, loses the host, and wants everything back from the store, byte for byte, over
// each kind of store; and then once more with no mount at all.
func TestRoundTrip(t *testing.T) {
	for _, kind := range storeKinds {
		t.Run(kind.name, func(t *testing.T) {
			dir := workDir(t)
			s := kind.start(t, dir)
			h := newHost(t, dir, "first", s)
			h.wsctl(quick, "init", s.target("rt"))
			before := workAndLeave(t, h, s)
			h.loseCache()
			returnAndVerify(t, h, s, before)
			withoutMount(t, dir, s)
		})
	}
}

// workAndLeave mounts the workspace, does every work in it, unmounts, and returns what was there.
func workAndLeave(t *testing.T, h *host, s *store) manifest.Manifest {
	t.Helper()
	m := h.mount(s.target("rt"), "rt")
	t.Logf("first mount: %v", m.ready.Round(time.Millisecond))
	for _, w := range works {
		dir := filepath.Join(m.dir, w.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.make(t, h, dir)
		t.Logf("work %s: %v", w.name, time.Since(start).Round(time.Millisecond))
		if t.Failed() {
			t.FailNow()
		}
	}
	now, peak := m.memory()
	t.Logf("daemon after the work: %d MiB resident, %d at its highest", now, peak)
	before := takeManifest(t, m.dir)
	start := time.Now()
	m.umount()
	stored, objects := s.usage(t)
	t.Logf("%d names, %d MiB of content; umount: %v; store: %d MiB in %d objects",
		len(before), before.Bytes()>>20, time.Since(start).Round(time.Millisecond), stored>>20, objects)
	return before
}

// returnAndVerify mounts the workspace from the store alone and compares.
func returnAndVerify(t *testing.T, h *host, s *store, before manifest.Manifest) {
	t.Helper()
	m := h.mount(s.target("rt"), "rt")
	t.Logf("mount from an empty cache: %v", m.ready.Round(time.Millisecond))
	start := time.Now()
	sameTree(t, before, takeManifest(t, m.dir))
	t.Logf("read everything back: %v", time.Since(start).Round(time.Millisecond))
	for _, w := range works {
		start := time.Now()
		w.verify(t, h, filepath.Join(m.dir, w.name))
		t.Logf("verify %s: %v", w.name, time.Since(start).Round(time.Millisecond))
	}
	m.check()
	now, peak := m.memory()
	t.Logf("daemon: %d MiB resident, %d at its highest", now, peak)
	m.umount()
}

// withoutMount gets the tree to a directory, puts it into another workspace, and gets it again.
func withoutMount(t *testing.T, dir string, s *store) {
	t.Helper()
	h := newHost(t, dir, "second", s)
	timed := func(what string, args ...string) {
		t.Helper()
		start := time.Now()
		h.wsctl(slow, args...)
		t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
	}
	got, again := filepath.Join(dir, "got"), filepath.Join(dir, "again")
	timed("get", "-w", s.target("rt"), "get", "/", got)
	first := takeManifest(t, got)
	timed("init", "init", s.target("rt2"))
	stored, _ := s.usage(t)
	for _, w := range works {
		timed("put "+w.name, "-w", s.target("rt2"), "put", filepath.Join(got, w.name), "/")
	}
	added, _ := s.usage(t)
	t.Logf("a second workspace with the same files: %d KiB more in the store", (added-stored)>>10)
	timed("get again", "-w", s.target("rt2"), "get", "/", again)
	second := takeManifest(t, again)
	for _, w := range works {
		sameTree(t, first.Sub(w.name), second.Sub(w.name))
	}
	h.wsctl(slow, "-w", s.target("rt2"), "check", "--read-data")
	if added-stored > stored/50 {
		t.Errorf("the same files cost %d bytes again, over 2 %% of %d", added-stored, stored)
	}
}

func takeManifest(t *testing.T, dir string) manifest.Manifest {
	t.Helper()
	m, err := manifest.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sameTree(t *testing.T, want, have manifest.Manifest) {
	t.Helper()
	if lines, n := manifest.Diff(want, have, 30); n > 0 {
		t.Errorf("%d differences in %d names:\n%s", n, len(want), strings.Join(lines, "\n"))
	}
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestSmallWorkspaceOpensFast mounts a small workspace from its cache and from an empty one, and measures an idle daemon.
func TestSmallWorkspaceOpensFast(t *testing.T) {
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("small"))
	m := h.mount(s.target("small"), "small")
	for i := range 100 {
		writeFile(t, filepath.Join(m.dir, fmt.Sprintf("file-%d", i)), "content")
	}
	m.umount()
	usable := func(limit time.Duration, what string) {
		best := time.Hour
		for range 5 { // the best of five: another process may have had the cores
			if what == "an empty cache" {
				h.loseCache()
			}
			start := time.Now()
			m = h.mount(s.target("small"), "small")
			if have := readFile(t, filepath.Join(m.dir, "file-50")); have != "content" {
				t.Errorf("file-50 is %q", have)
			}
			best = min(best, time.Since(start))
			if now, _ := m.memory(); now > 60 {
				t.Errorf("an idle daemon has %d MiB resident, at most 60", now)
			}
			m.umount()
		}
		t.Logf("mounted and usable from %s: %v", what, best.Round(time.Millisecond))
		if best > limit {
			t.Errorf("mounted and usable from %s in %v, at most %v", what, best, limit)
		}
	}
	// Half of this is promised; a run that shares the machine with other tests gets twice the time.
	usable(size(400*time.Millisecond, 200*time.Millisecond), "its cache")
	usable(size(800*time.Millisecond, 400*time.Millisecond), "an empty cache")
}

// TestColdMountReadsLittle counts the requests of a mount from an empty cache: a handful, however many files there are.
func TestColdMountReadsLittle(t *testing.T) {
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("cold"))
	m := h.mount(s.target("cold"), "cold")
	var costs []int64
	for files := range 2 {
		for i := range 1 + files*5000 {
			writeFile(t, filepath.Join(m.dir, fmt.Sprintf("%d-%d", files, i)), "content")
		}
		m.umount()
		h.loseCache()
		through, count := s.counted(t)
		m = h.mount(through.target("cold"), "cold")
		costs = append(costs, count.gets.Load())
		m.umount()
		h.loseCache()
		m = h.mount(s.target("cold"), "cold")
	}
	m.umount()
	t.Logf("GETs of a cold mount with 1 and with 5,000 files: %v", costs)
	if costs[0] > 20 || costs[1] > costs[0]+3 {
		t.Errorf("GETs %v: want a handful, and no more for more files", costs)
	}
}

// TestManyMounts mounts fifty workspaces of one host at once.
func TestManyMounts(t *testing.T) {
	count := size(10, 50)
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.url)
	mounts := make([]*mountPoint, count)
	for i := range count {
		name := fmt.Sprintf("w%02d", i)
		mounts[i] = h.mount(s.target(name), name, "--create")
		writeFile(t, filepath.Join(mounts[i].dir, "name"), name)
	}
	time.Sleep(3 * time.Second) // their first commits, then rest
	var total int64
	for _, m := range mounts {
		now, _ := m.memory()
		total += now
		if now > 60 {
			t.Errorf("%s: %d MiB resident, at most 60", m.dir, now)
		}
	}
	t.Logf("%d mounts: %d MiB resident together, %d each", count, total, total/int64(count))
	var group sync.WaitGroup
	for _, m := range mounts {
		group.Go(m.umount)
	}
	group.Wait()
}

// TestColdOpenOfMillion mounts a workspace of a million files from an empty cache: the time must not grow with the number of
// files, and memory must stay bounded, also while much more is written.
func TestColdOpenOfMillion(t *testing.T) {
	longTest(t)
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("million"))
	plantMillion(t, h, s, dir)
	h.loseCache()
	through, count := s.counted(t)
	m := h.mount(through.target("million"), "million")
	mounting := count.gets.Load()
	start := time.Now()
	names, err := os.ReadDir(filepath.Join(m.dir, "planted", "d0500"))
	if err != nil || len(names) != 1000 {
		t.Fatalf("ls: %d names, %v", len(names), err)
	}
	listed, listing := time.Since(start), count.gets.Load()-mounting
	now, _ := m.memory()
	t.Logf("mount of 1,000,000 files from an empty cache: %v, %d GETs; ls of 1,000: %v, %d GETs; %d MiB resident",
		m.ready.Round(time.Millisecond), mounting, listed.Round(time.Microsecond), listing, now)
	if mounting > 20 || listing > 40 {
		t.Errorf("%d GETs to mount, at most 20; %d to list, at most 40", mounting, listing)
	}
	if m.ready > 2*time.Second || listed > time.Second {
		t.Errorf("mount %v, at most 2 s; ls %v, at most 1 s", m.ready, listed)
	}
	for i := range 15_000 {
		if i%1000 == 0 {
			if err := os.Mkdir(filepath.Join(m.dir, fmt.Sprintf("new%d", i/1000)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, filepath.Join(m.dir, fmt.Sprintf("new%d/f%d", i/1000, i)), "a new file")
	}
	for i := range 2 {
		if err := os.Mkdir(filepath.Join(m.dir, fmt.Sprintf("big%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
		bigFile(t, h, filepath.Join(m.dir, fmt.Sprintf("big%d", i)))
	}
	_, peak := m.memory()
	m.sync()
	_, peakSynced := m.memory()
	t.Logf("after 15,000 files and 4 GiB: %d MiB at the highest, %d after the sync", peak, peakSynced)
	if peakSynced > 500 {
		t.Errorf("%d MiB resident at the highest, at most 500", peakSynced)
	}
	m.umount()
}

// plantMillion fills the workspace with a thousand directories of a thousand small files through wsctl put.
func plantMillion(t *testing.T, h *host, s *store, dir string) {
	t.Helper()
	source := filepath.Join(dir, "planted")
	start := time.Now()
	for d := range 1000 {
		sub := filepath.Join(source, fmt.Sprintf("d%04d", d))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range 1000 {
			writeFile(t, filepath.Join(sub, fmt.Sprintf("f%04d", f)), fmt.Sprintf("%d/%d", d, f))
		}
	}
	t.Logf("made a million files on ext4 in %v", time.Since(start).Round(time.Second))
	start = time.Now()
	h.wsctl(30*time.Minute, "-w", s.target("million"), "put", source, "/")
	t.Logf("put a million files in %v", time.Since(start).Round(time.Second))
}

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSecondWriterIsRefused wants the mount of a workspace that another host writes to refused at once, with who holds it,
// for how long, and what can be done.
func TestSecondWriterIsRefused(t *testing.T) {
	a, b, s := twoHosts(t)
	m := a.mount(s.target("shared"), "shared")
	time.Sleep(1100 * time.Millisecond) // an age to be told
	dir := filepath.Join(b.dir, "mnt", "refused")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := b.run(quick, "/", built.wsfs, "mount", s.target("shared"), dir)
	if o.code != 4 || isMounted(dir) {
		t.Fatalf("second mount: exit code %d, mounted %v, want a refusal with 4\n%s", o.code, isMounted(dir), o.stderr)
	}
	if o.took > 5*time.Second {
		t.Errorf("the refusal took %v", o.took)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	oneLine(t, o, hostname, "shared", "--read-only", "--takeover")
	if !regexp.MustCompile(`\d+(\.\d+)?(ms|s|m)`).MatchString(o.stderr) {
		t.Errorf("no age in %q", o.stderr)
	}
	m.umount()
	// The holder is gone: now it is free.
	b.mount(s.target("shared"), "free").umount()
}

// TestReaderFollows wants a read-only mount on another host to show a commit within five seconds, changes to known files
// included.
func TestReaderFollows(t *testing.T) {
	a, b, s := twoHosts(t)
	w := a.mount(s.target("shared"), "writer")
	writeFile(t, filepath.Join(w.dir, "state"), "one")
	w.sync()
	r := b.mount(s.target("shared"), "reader", "--read-only")
	if have := readFile(t, filepath.Join(r.dir, "state")); have != "one" {
		t.Fatalf("the reader has %q, want one", have)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "mine"), nil, 0o644); !errors.Is(err, syscall.EROFS) {
		t.Errorf("writing to the reader: %v, want EROFS", err)
	}
	for _, change := range []string{"two", "three, which is longer", "4"} {
		writeFile(t, filepath.Join(w.dir, "state"), change)
		writeFile(t, filepath.Join(w.dir, "new-"+change), change)
		w.sync()
		start := time.Now()
		for readFile(t, filepath.Join(r.dir, "state")) != change || !exists(filepath.Join(r.dir, "new-"+change)) {
			if time.Since(start) > 5*time.Second {
				t.Fatalf("%q is not there 5 s after its commit; state is %q", change, readFile(t, filepath.Join(r.dir, "state")))
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Logf("followed after %v", time.Since(start).Round(time.Millisecond))
	}
	w.umount()
	r.umount()
}

// TestTakeoverFences wants the first writer, after another host took its workspace, to turn read-only, keep what it had not
// committed, and say so.
func TestTakeoverFences(t *testing.T) {
	a, b, s := twoHosts(t)
	first := a.mount(s.target("shared"), "first")
	writeFile(t, filepath.Join(first.dir, "committed"), "by the first")
	first.sync()
	second := b.mount(s.target("shared"), "second", "--takeover")
	if have := readFile(t, filepath.Join(second.dir, "committed")); have != "by the first" {
		t.Errorf("the second writer sees %q", have)
	}
	writeFile(t, filepath.Join(second.dir, "of-the-second"), "2")
	second.sync()
	// The first does not know yet: this is its unsynced work.
	writeFile(t, filepath.Join(first.dir, "unsynced"), "work")
	start := time.Now()
	for err := error(nil); !errors.Is(err, syscall.EROFS); {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("the first writer is not read-only 30 s after the takeover: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		err = os.WriteFile(filepath.Join(first.dir, "probe"), nil, 0o644)
	}
	t.Logf("fenced after %v", time.Since(start).Round(time.Millisecond))
	st := first.status()
	if st.Fenced == "" || !st.ReadOnly {
		t.Errorf("status of the fenced writer: %+v", st)
	}
	if have := readFile(t, filepath.Join(first.dir, "unsynced")); have != "work" {
		t.Errorf("the fenced writer's unsynced file is %q", have)
	}
	o := a.run(time.Minute, "/", built.wsfs, "umount", first.dir)
	if o.code != 7 || !strings.Contains(o.stderr, "unsynced") || !strings.Contains(o.stderr, "commit 3") {
		t.Errorf("umount of the fenced writer: exit code %d; want 7, and whose commit ended its reign\n%s", o.code, o.stderr)
	}
	first.awaitGone()
	if exists(filepath.Join(second.dir, "unsynced")) {
		t.Error("the fenced writer's work reached the workspace")
	}
	second.check()
	second.umount()
	fencedWorkIsKept(t, a, s)
}

// fencedWorkIsKept mounts the workspace again where the fenced writer's work lies: it must neither be lost nor slip
// into the workspace.
func fencedWorkIsKept(t *testing.T, a *host, s *store) {
	t.Helper()
	dir := filepath.Join(a.dir, "mnt", "again")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := a.run(quick, "/", built.wsfs, "mount", s.target("shared"), dir)
	t.Logf("the next mount on the fenced host: exit code %d: %s%s", o.code, o.stdout, o.stderr)
	if o.code == 0 {
		m := &mountPoint{h: a, dir: dir}
		t.Cleanup(m.cleanUp)
		if st := m.status(); !st.ReadOnly || st.Fenced == "" {
			t.Errorf("mounted for writing over a commit of another: %+v", st)
		}
		if have := readFile(t, filepath.Join(dir, "unsynced")); have != "work" {
			t.Errorf("the unsynced file is %q", have)
		}
		return
	}
	if o.code != 4 || !strings.Contains(o.stderr, "unsynced") && !strings.Contains(o.stderr, "not in the store") {
		t.Errorf("the refusal does not say that unsynced work is there: %s", o.stderr)
	}
}

// twoHosts are two hosts on one store with a workspace called shared.
func twoHosts(t *testing.T) (a, b *host, s *store) {
	t.Helper()
	dir := workDir(t)
	s = startVersitygw(t, dir)
	a, b = newHost(t, dir, "a", s), newHost(t, dir, "b", s)
	a.wsctl(quick, "init", s.target("shared"))
	return a, b, s
}

// oneLine wants an error message of exactly one line that holds every part.
func oneLine(t *testing.T, o outcome, parts ...string) {
	t.Helper()
	text := strings.TrimRight(o.stderr, "\n")
	if text == "" || strings.Contains(text, "\n") {
		t.Errorf("want one line on stderr, have %q", o.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not name %q", text, part)
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

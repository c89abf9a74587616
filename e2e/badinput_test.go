package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// badCase is one mistake a person makes: what it ends with, and what the one line must name.
type badCase struct {
	name  string
	bin   string
	args  []string
	env   []string
	code  int
	names []string
}

// TestBadInput wants one clear line on stderr for each mistake, the documented exit code, and both soon.
func TestBadInput(t *testing.T) {
	dir := workDir(t)
	s := startVersitygw(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("fine"))
	m := h.mount(s.target("fine"), "fine")
	writeFile(t, filepath.Join(m.dir, "file"), "content")
	for _, c := range badCases(t, dir, s, m) {
		t.Run(c.name, func(t *testing.T) {
			with := *h
			with.t = t
			with.env = append(append([]string{}, h.env...), c.env...)
			o := with.run(quick, "/", c.bin, c.args...)
			if o.code != c.code {
				t.Errorf("exit code %d, want %d", o.code, c.code)
			}
			if o.took > 5*time.Second {
				t.Errorf("took %v", o.took)
			}
			oneLine(t, o, c.names...)
			if o.stdout != "" {
				t.Errorf("stdout: %q", o.stdout)
			}
		})
	}
	m.umount()
}

func badCases(t *testing.T, dir string, s *store, m *mountPoint) []badCase {
	t.Helper()
	empty := filepath.Join(dir, "empty")
	fullDir := filepath.Join(dir, "full")
	file := filepath.Join(dir, "plainfile")
	newer := filepath.Join(dir, "newer")
	for _, d := range []string{empty, fullDir, newer} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, file, "x")
	writeFile(t, filepath.Join(fullDir, "something"), "x")
	writeFile(t, filepath.Join(newer, "wsfs.json"), `{"version":99,"format":99}`)
	endpoint := s.url[strings.Index(s.url, "?"):]
	mount := func(args ...string) []string { return append([]string{"mount"}, args...) }
	inFine := func(args ...string) []string { return append([]string{"-w", m.dir}, args...) }
	long := strings.Repeat("n", 256)
	wrongKeys := []string{"AWS_ACCESS_KEY_ID=AKIAWRONG", "AWS_SECRET_ACCESS_KEY=wrong"}
	return []badCase{
		{"unknown scheme", built.wsfs, mount("gopher://bucket/x#w", empty), nil, 2, []string{"gopher"}},
		{"unknown URL parameter", built.wsfs, mount("s3://bucket/x?regoin=eu#w", empty), nil, 2, []string{"regoin"}},
		{"no bucket in the URL", built.wsfs, mount("s3:///x#w", empty), nil, 2, []string{"bucket"}},
		{"secret in the URL", built.wsfs, mount("s3://key:secret@bucket/x#w", empty), nil, 2, []string{"AWS"}},
		{"bucket that does not exist", built.wsfs, mount("s3://nosuchbucket"+endpoint+"#w", empty), nil, 3, []string{"nosuchbucket"}},
		{"wrong keys", built.wsfs, mount("--cache-dir", filepath.Join(dir, "other"), s.target("fine"), empty), wrongKeys, 5, []string{"s3://"}},
		{"nobody listens", built.wsfs, mount("s3://bucket?endpoint=http://127.0.0.1:9&region=x#w", empty), nil, 5, []string{"127.0.0.1:9"}},
		{"directory store that does not exist", built.wsfs, mount("dir:///no/such/store#w", empty), nil, 3, []string{"/no/such/store"}},
		{"store not initialised", built.wsfs, mount("dir://"+empty+"#w", empty), nil, 3, []string{empty, "wsctl init"}},
		{"store of a newer format", built.wsfs, mount("dir://"+newer+"#w", empty), nil, 4, []string{"99"}},
		{"workspace that does not exist", built.wsfs, mount(s.target("nosuch"), empty), nil, 3, []string{"nosuch"}},
		{"workspace name with a slash", built.wsfs, mount(s.target("a/b"), empty), nil, 2, []string{"a/b"}},
		{"workspace name ..", built.wsfs, mount(s.target(".."), empty), nil, 2, []string{`".."`}},
		{"empty workspace name", built.wsfs, mount(s.url+"#", empty), nil, 2, nil},
		{"mount point missing", built.wsfs, mount(s.target("fine"), "/no/such/dir"), nil, 3, []string{"/no/such/dir"}},
		{"mount point is a file", built.wsfs, mount(s.target("fine"), file), nil, 2, []string{file}},
		{"mount point not empty", built.wsfs, mount(s.target("fine"), fullDir), nil, 4, []string{fullDir}},
		{"cache directory in use", built.wsfs, mount(s.target("fine"), empty), nil, 4, []string{"fine"}},
		{"already mounted", built.wsfs, mount(s.target("fine"), m.dir), nil, 4, []string{m.dir}},
		{"one argument missing", built.wsfs, mount(s.target("fine")), nil, 2, nil},
		{"unknown flag", built.wsfs, mount("--warp", s.target("fine"), empty), nil, 2, []string{"--warp"}},
		{"bad size", built.wsfs, mount("--cache-size", "lots", s.target("fine"), empty), nil, 2, []string{"lots"}},
		{"bad -o option", built.wsfs, mount("-o", "warp", s.target("fine"), empty), nil, 2, []string{"warp"}},
		{"umount of a plain directory", built.wsfs, []string{"umount", empty}, nil, 3, []string{empty}},
		{"unknown command", built.wsfs, []string{"teleport"}, nil, 2, []string{"teleport"}},
		{"unknown wsctl command", built.wsctl, []string{"teleport"}, nil, 2, []string{"teleport"}},
		{"ls of a missing path", built.wsctl, inFine("ls", "/nosuch"), nil, 3, []string{"/nosuch"}},
		{"cat of a directory", built.wsctl, inFine("cat", "/"), nil, 1, []string{"/"}},
		{"mkdir of a name too long", built.wsctl, inFine("mkdir", "/"+long), nil, 2, []string{"nnn"}},
		{"rm of a directory", built.wsctl, inFine("rm", "/"), nil, 1, []string{"/"}},
		{"put of a missing file", built.wsctl, inFine("put", "/no/such/file", "/"), nil, 3, []string{"/no/such/file"}},
		{"get of a missing path", built.wsctl, inFine("get", "/nosuch", filepath.Join(dir, "got")), nil, 3, []string{"/nosuch"}},
		{"init twice", built.wsctl, []string{"init", s.target("fine")}, nil, 4, []string{"fine"}},
		{"workspace nowhere", built.wsctl, []string{"-w", "/no/such/mount", "ls", "/"}, nil, 3, []string{"/no/such/mount"}},
	}
}

// TestDamagedPack wants a read of the damaged range to fail, the rest to be readable, and check to name the pack.
func TestDamagedPack(t *testing.T) {
	dir := workDir(t)
	s := startDir(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("hurt"))
	m := h.mount(s.target("hurt"), "hurt")
	writeFile(t, filepath.Join(m.dir, "good"), strings.Repeat("good content ", 1000))
	m.sync()
	packs := map[string]bool{}
	for _, p := range packFiles(t, s) {
		packs[p] = true
	}
	writeFile(t, filepath.Join(m.dir, "bad"), strings.Repeat("bad content, to be damaged ", 1000))
	m.umount()
	damaged := 0
	for _, p := range packFiles(t, s) {
		if !packs[p] {
			damageMiddle(t, p)
			damaged++
		}
	}
	if damaged == 0 {
		t.Fatal("no pack was written for the second file")
	}
	h.loseCache()
	o := h.run(time.Minute, "/", built.wsctl, "-w", s.target("hurt"), "check", "--read-data")
	if o.code != 6 || !strings.Contains(o.stdout+o.stderr, "pack") {
		t.Errorf("check of a damaged store: exit code %d, want 6 and the pack's name\n%s%s", o.code, o.stdout, o.stderr)
	}
}

func packFiles(t *testing.T, s *store) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "packs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// damageMiddle turns a few bytes in the middle of a pack.
func damageMiddle(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range min(16, len(text)/2) {
		text[len(text)/3+i] ^= 0x55
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedJournal wants a workspace whose local journal is damaged neither guessed at nor thrown away: the mount says
// where the damage is, and the damaged directory stays.
func TestDamagedJournal(t *testing.T) {
	dir := workDir(t)
	s := startDir(t, dir)
	h := newHost(t, dir, "host", s)
	h.wsctl(quick, "init", s.target("hurt"))
	cache := filepath.Join(h.dir, "cache", "mine")
	m := h.mount(s.target("hurt"), "hurt", "--cache-dir", cache)
	writeFile(t, filepath.Join(m.dir, "committed"), "in the store")
	m.umount()
	entries, err := os.ReadDir(filepath.Join(cache, "meta"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "MANIFEST" {
			writeFile(t, filepath.Join(cache, "meta", e.Name()), "this is no manifest")
		}
	}
	o := h.run(quick, "/", built.wsfs, "mount", "--cache-dir", cache, s.target("hurt"), m.dir)
	said := fmt.Sprintf("exit code %d, %s", o.code, o.stderr)
	if isMounted(m.dir) {
		if err := os.WriteFile(filepath.Join(m.dir, "new"), nil, 0o644); err == nil {
			t.Errorf("a damaged journal was mounted for writing: %s", said)
		}
	} else if o.code != 6 || !strings.Contains(o.stderr, cache) {
		t.Errorf("mount with a damaged journal: %s; want 6 and the directory", said)
	}
	left, err := filepath.Glob(cache + "*")
	if err != nil || len(left) == 0 {
		t.Errorf("the damaged directory is gone: %v, %v", left, err)
	}
}

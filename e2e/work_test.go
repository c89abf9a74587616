package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/e2e/fixture"
)

// work is a program's whole use of a directory. make fills the directory, verify proves later, perhaps on another host,
// that the programs still accept what they find; verify may write.
type work struct {
	name   string
	make   func(t *testing.T, h *host, dir string)
	verify func(t *testing.T, h *host, dir string)
}

var works = []work{
	{"npm", installPackages, checkPackages},
	{"git", makeHistory, checkHistory},
	{"go", buildModule, checkBuild},
	{"sqlite", fillDatabase, checkDatabase},
	{"small", manySmallFiles, nothingToCheck},
	{"big", bigFile, nothingToCheck},
	{"odd", oddThings, checkOddThings},
}

func nothingToCheck(*testing.T, *host, string) {} // the manifest says all

func installPackages(t *testing.T, h *host, dir string) {
	if err := project().Write(dir); err != nil {
		t.Fatal(err)
	}
	cmd := fixture.NPM(t.Context(), dir, npmCache(t), true)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, last(string(out)))
	}
}

func checkPackages(t *testing.T, h *host, dir string) {
	h.must(time.Minute, dir, "npm", "ls", "--cache", npmCache(t), "--offline", "--no-update-notifier")
	if out := h.must(time.Minute, dir, "node_modules/.bin/tsc", "--version"); !strings.HasPrefix(out, "Version ") {
		t.Errorf("tsc --version: %q", out)
	}
}

// makeHistory commits real sources, a dozen files at a time, with a change to an older file in each commit.
func makeHistory(t *testing.T, h *host, dir string) {
	commits := size(60, 400)
	files, err := fixture.ModuleSources(t.Context(), 12*commits)
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) {
		t.Helper()
		h.must(5*time.Minute, dir, "git", append([]string{"-c", "user.name=e2e", "-c", "user.email=e2e@example.com"}, args...)...)
	}
	git("init", "-q", "-b", "main")
	git("config", "gc.auto", "0")
	for c := range commits {
		for i, file := range files[c*len(files)/commits : (c+1)*len(files)/commits] {
			copyFile(t, file, filepath.Join(dir, fmt.Sprintf("p%03d/%d-%s", c, i, filepath.Base(file))))
		}
		appendLine(t, filepath.Join(dir, fmt.Sprintf("p%03d/LOG", c/2)), fmt.Sprintf("commit %d", c))
		git("add", "-A")
		git("commit", "-q", "-m", fmt.Sprintf("commit %d", c))
		if c%20 == 10 {
			git("tag", fmt.Sprintf("v%d", c))
		}
	}
	git("gc", "-q")
	git("fsck", "--strict")
}

func checkHistory(t *testing.T, h *host, dir string) {
	h.must(5*time.Minute, dir, "git", "fsck", "--strict", "--full")
	if out := h.must(time.Minute, dir, "git", "status", "--porcelain"); out != "" {
		t.Errorf("git status after the round trip: %s", last(out))
	}
	if out := h.must(time.Minute, dir, "git", "rev-list", "--count", "HEAD"); strings.TrimSpace(out) != fmt.Sprint(size(60, 400)) {
		t.Errorf("%s commits, want %d", strings.TrimSpace(out), size(60, 400))
	}
}

// buildModule compiles a real module from sources in dir, its build cache in dir too.
func buildModule(t *testing.T, h *host, dir string) {
	src := filepath.Join(dir, "src")
	from, _ := moduleToBuild(t, h)
	h.must(5*time.Minute, dir, "cp", "-r", "--no-preserve=mode", from, src)
	goBuild(t, h, dir)
}

// moduleToBuild is the directory of the sources and the command in it.
func moduleToBuild(t *testing.T, h *host) (dir, command string) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/klauspost/compress").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), "./s2/cmd/s2c"
}

func goBuild(t *testing.T, h *host, dir string) {
	t.Helper()
	_, command := moduleToBuild(t, h)
	goEnv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	with := *h
	with.env = append(append([]string{}, h.env...), "GOCACHE="+dir+"/cache", "GOPATH="+goEnv("GOPATH"), "GOMODCACHE="+goEnv("GOMODCACHE"),
		"GOPROXY="+goEnv("GOPROXY"), "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off", "GOTELEMETRY=off")
	with.must(slow, filepath.Join(dir, "src"), "go", "build", "-o", dir+"/out", command)
}

// checkBuild builds again: the result must be the same, and come from the cache.
func checkBuild(t *testing.T, h *host, dir string) {
	before := h.must(time.Minute, dir, "sha256sum", "out")
	start := time.Now()
	goBuild(t, h, dir)
	t.Logf("go build from its cache: %v", time.Since(start).Round(time.Millisecond))
	if after := h.must(time.Minute, dir, "sha256sum", "out"); after != before {
		t.Errorf("built %s, before the round trip it was %s", after, before)
	}
}

// Four writers share a database in WAL mode.
const writers = 4

func fillDatabase(t *testing.T, h *host, dir string) {
	h.must(time.Minute, dir, "sqlite3", "-bail", "db", "PRAGMA journal_mode=WAL; CREATE TABLE t(writer INTEGER, n INTEGER, v TEXT, UNIQUE(writer, n));")
	var group sync.WaitGroup
	for w := range writers {
		var script strings.Builder
		script.WriteString(".timeout 60000\nPRAGMA synchronous=FULL;\n")
		for n := range size(200, 1000) {
			fmt.Fprintf(&script, "BEGIN IMMEDIATE; INSERT INTO t VALUES(%d, %d, hex(randomblob(%d))); COMMIT;\n", w, n, 50+n%400)
		}
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), "sqlite3", "-bail", "db")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("sqlite writer %d: %v: %s", w, err, last(string(out)))
			}
		})
	}
	group.Wait()
}

func checkDatabase(t *testing.T, h *host, dir string) {
	if out := h.must(time.Minute, dir, "sqlite3", "db", "PRAGMA integrity_check;"); strings.TrimSpace(out) != "ok" {
		t.Errorf("integrity_check: %s", last(out))
	}
	if out := h.must(time.Minute, dir, "sqlite3", "db", "SELECT count(*) FROM t;"); strings.TrimSpace(out) != fmt.Sprint(writers*size(200, 1000)) {
		t.Errorf("%s rows, want %d", strings.TrimSpace(out), writers*size(200, 1000))
	}
}

func manySmallFiles(t *testing.T, h *host, dir string) {
	for i := range 20_000 {
		content := strings.Repeat(fmt.Sprintf("%d ", i), i%300)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("small-%d", i)), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func bigFile(t *testing.T, h *host, dir string) {
	n := size(int64(256<<20), 2<<30)
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, fixture.Random(42, n), make([]byte, 1<<20))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// oddThings makes one of everything that is not a plain file with a plain name.
func oddThings(t *testing.T, h *host, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	steps := []struct {
		what string
		do   func() error
	}{
		{"a file of several names", func() error { return os.WriteFile(at("one"), []byte("one content"), 0o640) }},
		{"hard link", func() error { return os.Link(at("one"), at("two")) }},
		{"directory", func() error { return os.Mkdir(at("dir"), 0o2775) }},
		{"hard link elsewhere", func() error { return os.Link(at("one"), at("dir/three")) }},
		{"symlink", func() error { return os.Symlink("../odd/one", at("symlink")) }},
		{"dangling symlink", func() error { return os.Symlink(strings.Repeat("x/", 2000), at("dangling")) }},
		{"name that is not UTF-8", func() error { return os.WriteFile(at("\xff\xfe\x80 name\n"), []byte("bytes"), 0o600) }},
		{"name of 255 bytes", func() error { return os.WriteFile(at(strings.Repeat("n", 255)), nil, 0o600) }},
		{"deep path", func() error { return os.MkdirAll(at(strings.Repeat("deep/", 100)), 0o755) }},
		{"fifo", func() error { return unix.Mkfifo(at("fifo"), 0o620) }},
		{"socket", func() error { return unix.Mknod(at("socket"), unix.S_IFSOCK|0o755, 0) }},
		{"character device", func() error { return unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }},
		{"empty directory", func() error { return os.Mkdir(at("empty"), 0o500) }},
		{"empty file", func() error { return os.WriteFile(at("nothing"), nil, 0o4711) }},
		{"set-user-ID", func() error { return os.Chmod(at("nothing"), os.ModeSetuid|0o711) }},
		{"owner", func() error { return os.Lchown(at("symlink"), 1234, 65534) }},
		{"owner of a directory", func() error { return os.Chown(at("dir"), 77, 88) }},
		{"xattr", func() error { return unix.Setxattr(at("one"), "user.comment", []byte("a\x00b"), 0) }},
		{"large xattr", func() error {
			return unix.Setxattr(at("dir"), "user.large", []byte(strings.Repeat("large ", 600)), 0)
		}},
		{"trusted xattr of a symlink", func() error { return unix.Lsetxattr(at("symlink"), "trusted.k", []byte("v"), 0) }},
		{"sparse file", func() error { return sparse(at("sparse"), 1<<30, 0, 300<<20, 1<<30-4096) }},
		{"small sparse file", func() error { return sparse(at("sparse-small"), 1<<20, 512<<10) }},
		{"nothing but hole", func() error { return sparse(at("hole"), 5<<20) }},
		{"time before 1970", func() error { return os.Chtimes(at("nothing"), time.Unix(-5, 1), time.Unix(-1000, 123456789)) }},
		{"time after 2038", func() error { return os.Chtimes(at("one"), time.Unix(1<<32, 1), time.Unix(1<<32+5, 999999999)) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
	}
}

// sparse makes a file of the given size with 4 KiB of data at each offset.
func sparse(path string, size int64, offsets ...int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, off := range offsets {
		if _, werr := f.WriteAt([]byte(strings.Repeat("data", 1024)), off); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	return errors.Join(err, f.Truncate(size), f.Close())
}

func checkOddThings(t *testing.T, h *host, dir string) {
	var one, three unix.Stat_t
	if err := errors.Join(unix.Stat(dir+"/one", &one), unix.Stat(dir+"/dir/three", &three)); err != nil {
		t.Fatal(err)
	}
	if one.Ino != three.Ino || one.Nlink != 3 {
		t.Errorf("hard links: inodes %d and %d, %d links", one.Ino, three.Ino, one.Nlink)
	}
	var sp unix.Stat_t
	if err := unix.Stat(dir+"/sparse", &sp); err != nil {
		t.Fatal(err)
	}
	if used := sp.Blocks * 512; sp.Size != 1<<30 || used > 1<<20 {
		t.Errorf("sparse file: %d bytes of which %d are allocated", sp.Size, used)
	}
	if _, err := os.Stat(filepath.Join(dir, strings.Repeat("m", 256))); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("a name of 256 bytes: %v, want ENAMETOOLONG", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func appendLine(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(f, line)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

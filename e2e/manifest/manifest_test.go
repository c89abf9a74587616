package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeTree fills dir with one of everything that a manifest records.
func makeTree(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must(os.Mkdir(at("sub"), 0o750))
	must(os.WriteFile(at("sub/a"), []byte("content"), 0o640))
	must(os.Link(at("sub/a"), at("b-link")))
	must(os.Symlink("sub/a", at("sym")))
	must(os.WriteFile(at("name \xff\n"), nil, 0o600))
	must(unix.Mkfifo(at("fifo"), 0o600))
	must(unix.Setxattr(at("sub/a"), "user.k", []byte("v\x00w"), 0))
	f, err := os.Create(at("sparse"))
	must(err)
	_, err = f.WriteAt(make([]byte, 4096), 1<<20)
	must(err)
	must(f.Truncate(2 << 20))
	must(f.Close())
	stamp := time.Unix(1_600_000_000, 123_456_789)
	for _, name := range []string{"sub/a", "name \xff\n", "sparse", "sub", "."} {
		must(os.Chtimes(at(name), stamp, stamp))
	}
	times := []unix.Timespec{unix.NsecToTimespec(stamp.UnixNano()), unix.NsecToTimespec(stamp.UnixNano())}
	for _, name := range []string{"sym", "fifo"} {
		must(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), times, unix.AT_SYMLINK_NOFOLLOW))
	}
}

func take(t *testing.T, dir string) Manifest {
	t.Helper()
	m, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTakeRecordsEverything(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir)
	m := take(t, dir)
	if len(m) != 8 {
		t.Errorf("%d entries, want 8", len(m))
	}
	a := m["sub/a"]
	if a.Mode != unix.S_IFREG|0o640 || a.Size != 7 || a.Mtime != 1_600_000_000_123_456_789 || a.Nlink != 2 {
		t.Errorf("sub/a: %+v", a)
	}
	if want := "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"; a.SHA256 != want {
		t.Errorf("sub/a: content %s, want %s", a.SHA256, want)
	}
	if a.Link != "b-link" || m["b-link"].Link != "b-link" {
		t.Errorf("link groups: %q and %q, want b-link", a.Link, m["b-link"].Link)
	}
	if a.Xattrs["user.k"] != "v\x00w" {
		t.Errorf("xattrs: %q", a.Xattrs)
	}
	if m["sym"].Target != "sub/a" {
		t.Errorf("target: %q", m["sym"].Target)
	}
	if want := fmt.Sprint([]Range{{0, 1 << 20}, {1<<20 + 4096, 2 << 20}}); fmt.Sprint(m["sparse"].Holes) != want {
		t.Errorf("holes %v, want %v", m["sparse"].Holes, want)
	}
	if _, ok := m["name \xff\n"]; !ok {
		t.Error("the name that is not UTF-8 is missing")
	}
	if want := int64(7 + 2<<20); m.Bytes() != want {
		t.Errorf("%d bytes, want %d", m.Bytes(), want)
	}
}

func TestEqualTreesHaveNoDiff(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	makeTree(t, one)
	makeTree(t, two)
	if lines, n := Diff(take(t, one), take(t, two), 10); n != 0 {
		t.Errorf("%d differences: %s", n, strings.Join(lines, "; "))
	}
}

// TestDiffSeesEachChange makes every kind of change to a tree and wants it, and nothing else, reported.
func TestDiffSeesEachChange(t *testing.T) {
	changes := []struct {
		want   string // substring of the only differing field's line
		change func(dir string) error
	}{
		{`"sub/a": mode`, func(d string) error { return os.Chmod(d+"/sub/a", 0o600) }},
		{`"sub": mode`, func(d string) error { return os.Chmod(d+"/sub", 0o700) }},
		{`"sparse": mtime`, func(d string) error {
			return os.Chtimes(d+"/sparse", time.Time{}, time.Unix(1_600_000_000, 123_456_788))
		}},
		{`"sub/a": content`, func(d string) error { return os.WriteFile(d+"/sub/a", []byte("Content"), 0) }},
		{`"sub/a": xattrs`, func(d string) error { return unix.Setxattr(d+"/sub/a", "user.k", []byte("v"), 0) }},
		{`"sub/a": xattrs`, func(d string) error { return unix.Removexattr(d+"/sub/a", "user.k") }},
		{`"sparse": holes`, func(d string) error { return writeZeros(d+"/sparse", 0) }},
		{`"extra": not expected`, func(d string) error { return os.Mkdir(d+"/extra", 0o755) }},
		{`"fifo": missing`, func(d string) error { return os.Remove(d + "/fifo") }},
		{`"sym": target`, func(d string) error {
			return firstError(os.Remove(d+"/sym"), os.Symlink("sub/b", d+"/sym"))
		}},
		{`"b-link": link group`, func(d string) error {
			return firstError(os.Remove(d+"/b-link"), os.WriteFile(d+"/b-link", []byte("content"), 0o640))
		}},
	}
	if os.Getuid() == 0 {
		changes = append(changes, struct {
			want   string
			change func(dir string) error
		}{`"sub/a": uid`, func(d string) error { return os.Chown(d+"/sub/a", 12, -1) }})
	}
	for _, c := range changes {
		t.Run(c.want, func(t *testing.T) {
			dir := t.TempDir()
			makeTree(t, dir)
			before := take(t, dir)
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			lines, n := Diff(before, take(t, dir), 100)
			if n != len(lines) || !strings.Contains(strings.Join(lines, "\n"), c.want) {
				t.Errorf("want %q among %d differences: %q", c.want, n, lines)
			}
		})
	}
}

// writeZeros fills a block of a file with zeros and puts its mtime back.
func writeZeros(path string, off int64) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, 4096), off)
	return firstError(err, f.Close(), os.Chtimes(path, st.ModTime(), st.ModTime()))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestSub(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir)
	m := take(t, dir)
	sub := m.Sub("sub")
	if len(sub) != 2 || sub["a"].Size != 7 || sub["."].Mode != m["sub"].Mode {
		t.Errorf("sub: %+v", sub)
	}
}

func TestDiffCountsBeyondItsLimit(t *testing.T) {
	want := Manifest{"a": {}, "b": {}, "c": {}}
	if lines, n := Diff(want, Manifest{}, 2); len(lines) != 2 || n != 3 {
		t.Errorf("%d lines of %d, want 2 of 3", len(lines), n)
	}
}

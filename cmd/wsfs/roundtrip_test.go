package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wsfs/e2e/manifest"
)

// nasty makes random trees of everything a Linux directory can hold.
type nasty struct {
	t     *testing.T
	rng   *rand.Rand
	dirs  []string
	files []string // not directories
}

func (n *nasty) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// name is a fresh name in dir: odd bytes, not UTF-8, up to 255 of them.
func (n *nasty) name(dir string) string {
	for {
		var b []byte
		switch n.rng.IntN(5) {
		case 0:
			b = fmt.Appendf(nil, "plain%d", n.rng.IntN(1000))
		case 1:
			b = bytes.Repeat([]byte{byte('a' + n.rng.IntN(26))}, 255)
		case 2:
			b = fmt.Appendf(nil, ".hidden %d\n\t'\"\\*", n.rng.IntN(1000))
		case 3:
			b = fmt.Appendf(nil, "ünïcode→%d", n.rng.IntN(1000))
		default:
			for range 1 + n.rng.IntN(20) {
				b = append(b, byte(1+n.rng.IntN(255)))
			}
			b = bytes.ReplaceAll(b, []byte("/"), []byte("_"))
		}
		p := dir + "/" + string(b)
		if s := string(b); s == "." || s == ".." {
			continue
		}
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			return p
		}
	}
}

// fill makes count entries below root.
func (n *nasty) fill(root string, count int) {
	n.dirs = []string{root}
	for range count {
		p := n.name(n.dirs[n.rng.IntN(len(n.dirs))])
		switch n.rng.IntN(12) {
		case 0, 1:
			if len(p) < 3000 {
				n.must(os.Mkdir(p, 0o777))
				n.dirs = append(n.dirs, p)
				continue
			}
			fallthrough
		case 2:
			n.must(os.Symlink([]string{"", "a", "/nowhere/at/all", "../x\xff", strings.Repeat("l/", 1500)}[1+n.rng.IntN(4)], p))
		case 3:
			n.must(unix.Mkfifo(p, 0o600))
		case 4:
			n.must(unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(uint32(n.rng.IntN(200)), uint32(n.rng.IntN(200))))))
		case 5:
			if len(n.files) > 0 {
				n.must(os.Link(n.files[n.rng.IntN(len(n.files))], p))
				continue
			}
			fallthrough
		default:
			n.file(p)
		}
		n.files = append(n.files, p)
	}
	for _, p := range n.files {
		n.decorate(p)
	}
	for i := len(n.dirs) - 1; i >= 0; i-- {
		n.decorate(n.dirs[i])
	}
}

// file writes a file of ranges and holes.
func (n *nasty) file(p string) {
	f, err := os.Create(p)
	n.must(err)
	defer f.Close()
	size := []int64{0, 1, 511, 512, 513, 4096, 100_000, 600_000, 3 << 20}[n.rng.IntN(9)]
	buf := make([]byte, size)
	for i := range buf {
		buf[i] = byte(n.rng.Uint32())
	}
	if n.rng.IntN(3) > 0 {
		_, err := f.Write(buf)
		n.must(err)
		return
	}
	var off int64
	for range n.rng.IntN(5) {
		off += int64(n.rng.IntN(64)) * 4096
		k := min(int64(1+n.rng.IntN(8))*4096, size)
		_, err := f.WriteAt(buf[:k], off)
		n.must(err)
		off += k
	}
	n.must(f.Truncate(off + int64(n.rng.IntN(2))*1_000_000))
}

// decorate gives an entry an owner, attributes, a mode and a time, in the order in which they stay.
func (n *nasty) decorate(p string) {
	var st unix.Stat_t
	n.must(unix.Lstat(p, &st))
	n.must(os.Lchown(p, n.rng.IntN(3)*1000, n.rng.IntN(3)*1000))
	kind := st.Mode & unix.S_IFMT
	if (kind == unix.S_IFREG || kind == unix.S_IFDIR) && n.rng.IntN(3) == 0 {
		for i := range 1 + n.rng.IntN(3) {
			v := bytes.Repeat([]byte{byte(i), 0, 0xff}, n.rng.IntN(300))
			n.must(unix.Lsetxattr(p, fmt.Sprintf("user.a%d\xfe", i), v, 0))
		}
	}
	if kind != unix.S_IFLNK {
		n.must(unix.Chmod(p, []uint32{0, 0o400, 0o644, 0o755, 0o4755, 0o2711, 0o1777}[n.rng.IntN(7)]))
	}
	ns := []int64{0, 1, 999_999_999, 1_700_000_000_123_456_789, -1_000_000_001, 4_000_000_000_000_000_007}[n.rng.IntN(6)]
	n.must(unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{unix.NsecToTimespec(ns), unix.NsecToTimespec(ns)}, unix.AT_SYMLINK_NOFOLLOW))
}

func makeNasty(t *testing.T, root string, seed uint64, count int) {
	t.Helper()
	t.Logf("seed %d", seed)
	n := &nasty{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	n.fill(root, count)
}

func wantSame(t *testing.T, what, a, b string) {
	t.Helper()
	want, err := manifest.Take(a)
	if err != nil {
		t.Fatal(err)
	}
	have, err := manifest.Take(b)
	if err != nil {
		t.Fatal(err)
	}
	if lines, total := manifest.Diff(want, have, 20); total > 0 {
		t.Errorf("%s: %d differences in %d entries:\n%s", what, total, len(want), strings.Join(lines, "\n"))
	}
}

// TestPutGetRoundTrip: a tree that was put and got is the tree, with and without a daemon, through the store alone, and
// as the mount shows it.
func TestPutGetRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	h := newHost(t)
	src := h.mkdir("src")
	makeNasty(t, src, seed, 250)
	h.ok("wsctl", "-w", "demo", "put", src+"/.", "/without")
	h.ok("wsctl", "-w", "demo", "get", "/without", h.dir+"/out1")
	wantSame(t, "without a daemon", src, h.dir+"/out1")
	h.loseCache()
	dir := h.mount("demo")
	wantSame(t, "the mount of what was put without a daemon", src, dir+"/without")
	h.ok("wsctl", "-w", dir, "put", src, "/with")
	wantSame(t, "the mount of what was put beside it", src, dir+"/with")
	h.ok("wsctl", "-w", dir, "get", "/with", h.dir+"/out2")
	wantSame(t, "with a daemon", src, h.dir+"/out2")
	h.ok("wsctl", "-w", dir, "cp", "-r", "/with", "/copied")
	wantSame(t, "a copy inside the workspace", src, dir+"/copied")
	// Again over what is there, both ways: nothing changes.
	h.ok("wsctl", "-w", dir, "put", src+"/.", "/with")
	wantSame(t, "put again", src, dir+"/with")
	h.ok("wsctl", "-w", dir, "get", "/with/.", h.dir+"/out2")
	wantSame(t, "got again", src, h.dir+"/out2")
	h.ok("wsfs", "umount", dir)
	h.loseCache()
	h.ok("wsctl", "-w", "demo", "check", "--read-data")
	h.ok("wsctl", "-w", "demo", "get", "/copied", h.dir+"/out3")
	wantSame(t, "from the store alone", src, h.dir+"/out3")
}

// TestPutGetDeep: trees whose paths no system call takes.
func TestPutGetDeep(t *testing.T) {
	h := newHost(t)
	src := h.mkdir("src")
	name := strings.Repeat("d", 250)
	const depth = 25
	fd, err := unix.Open(src, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, oerr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		fd, err = next, oerr
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	h.ok("wsctl", "-w", "demo", "put", src, "/deep")
	h.ok("wsctl", "-w", "demo", "get", "/deep", h.dir+"/out")
	got := 0
	fd, err = unix.Open(h.dir+"/out", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for err == nil {
		next, oerr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if fd, err = next, oerr; err == nil {
			got++
		}
	}
	if got != depth {
		t.Errorf("%d levels came back, want %d (%v)", got, depth, err)
	}
}

// TestGetDoesNotFollow: a link below the target leads no write out of it.
func TestGetDoesNotFollow(t *testing.T) {
	h := newHost(t)
	src, out, outside := h.mkdir("src"), h.mkdir("out"), h.mkdir("outside")
	if err := os.MkdirAll(src+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	h.write(src+"/d/f", "x")
	h.ok("wsctl", "-w", "demo", "put", src+"/.", "/")
	if err := os.Symlink(outside, out+"/d"); err != nil {
		t.Fatal(err)
	}
	if r := h.run("wsctl", "-w", "demo", "get", "/", out); r.code == 0 {
		t.Error(r)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("written outside: %v %v", names, err)
	}
}

// TestPutManyFiles: 2,000 small files in one put, quickly.
func TestPutManyFiles(t *testing.T) {
	h := newHost(t)
	src := h.mkdir("src")
	for i := range 2000 {
		d := fmt.Sprintf("%s/d%d", src, i/100)
		if i%100 == 0 {
			if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		h.write(fmt.Sprintf("%s/f%d", d, i), strings.Repeat("y", i%2000))
	}
	r := h.run("wsctl", "-w", "demo", "put", src, "/many")
	if r.code != 0 {
		t.Fatal(r)
	}
	t.Logf("put 2000 files, committed: %v", r.took)
	r = h.run("wsctl", "-w", "demo", "get", "/many", h.dir+"/out")
	if r.code != 0 {
		t.Fatal(r)
	}
	t.Logf("get: %v", r.took)
	wantSame(t, "many files", src, h.dir+"/out")
}

// TestStdinStdout streams single files.
func TestStdinStdout(t *testing.T) {
	h := newHost(t)
	body := bytes.Repeat([]byte("stream\x00"), 1<<20)
	if r := h.runIn(h.dir, body, "wsctl", "-w", "demo", "put", "-m", "0600", "-", "/f"); r.code != 0 {
		t.Fatal(r)
	}
	if got := h.ok("wsctl", "-w", "demo", "get", "/f", "-"); got != string(body) {
		t.Errorf("%d bytes came back, want %d", len(got), len(body))
	}
	if got := h.ok("wsctl", "-w", "demo", "cat", "--offset=7000000", "--length=14", "/f"); got != string(body[7000000:7000014]) {
		t.Errorf("range: %q", got)
	}
	if got := h.ok("wsctl", "-w", "demo", "stat", "/f"); !strings.Contains(got, "mode 0600") {
		t.Errorf("stat: %s", got)
	}
}

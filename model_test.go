package wsfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"wsfs/syncer"
)

// modelNode is a file or directory of the reference model.
type modelNode struct {
	dir     map[string]*modelNode // nil: a file
	data    []byte
	target  string // symlink
	mode    uint32
	mtime   int64 // 0: not set by us
	xattrs  map[string]string
	nlink   uint32
	symlink bool
}

type model struct {
	t    *testing.T
	rng  *rand.Rand
	w    *Workspace
	root *modelNode
}

// pick returns the path of a random existing node, with its parent and name.
func (m *model) pick() (string, *modelNode, *modelNode, string) {
	node, parent, name, p := m.root, (*modelNode)(nil), "", "/"
	for len(node.dir) > 0 && (parent == nil || m.rng.IntN(3) > 0) {
		names := slices.Sorted(maps.Keys(node.dir))
		name = names[m.rng.IntN(len(names))]
		parent, node, p = node, node.dir[name], path.Join(p, name)
	}
	return p, node, parent, name
}

func (m *model) pickDir() (string, *modelNode) {
	for range 20 {
		if p, n, _, _ := m.pick(); n.dir != nil {
			return p, n
		}
	}
	return "/", m.root
}

func (m *model) want(err, want error, what string) bool {
	m.t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		m.t.Fatalf("%s: got %v, want %v", what, err, want)
	}
	return err == nil
}

func (m *model) sizes() int {
	return []int{0, 1, 300, 512, 513, 5000, 70_000, 131_072, 131_073, 700_000}[m.rng.IntN(10)]
}

func (m *model) bytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 97 {
		b[i] = byte(m.rng.Uint32())
	}
	return b
}

func (m *model) step() {
	switch r := m.rng.IntN(100); {
	case r < 25:
		m.create()
	case r < 40:
		m.writeAt()
	case r < 47:
		m.truncate()
	case r < 55:
		m.remove()
	case r < 67:
		m.rename()
	case r < 72:
		m.link()
	case r < 82:
		m.attrs()
	default:
		m.read()
	}
}

func (m *model) create() {
	p, d := m.pickDir()
	name := fmt.Sprintf("%c%d", 'a'+m.rng.IntN(6), m.rng.IntN(4))
	full := path.Join(p, name)
	old := d.dir[name]
	var exist error
	if old != nil {
		exist = fs.ErrExist
	}
	switch m.rng.IntN(4) {
	case 0:
		if m.want(m.w.MkdirPath(ctx, full, 0o750), exist, "mkdir "+full) {
			d.dir[name] = &modelNode{dir: map[string]*modelNode{}, mode: 0o750, nlink: 1}
		}
	case 1:
		if m.want(m.w.SymlinkPath(ctx, "to/"+name, full), exist, "symlink "+full) {
			d.dir[name] = &modelNode{symlink: true, target: "to/" + name, mode: 0o777, nlink: 1}
		}
	default:
		if old != nil && (old.dir != nil || old.symlink) {
			return
		}
		data := m.bytes(m.sizes())
		m.want(m.w.WriteFile(ctx, full, data, 0o640), nil, "write "+full)
		if old == nil {
			old = &modelNode{mode: 0o640, nlink: 1}
			d.dir[name] = old
		}
		old.data, old.mtime = data, 0
	}
}

func (m *model) writeAt() {
	p, n, _, _ := m.pick()
	if n.dir != nil || n.symlink {
		return
	}
	f, err := m.w.OpenFile(ctx, p, os.O_RDWR, 0)
	m.want(err, nil, "open "+p)
	defer f.Close()
	for range 1 + m.rng.IntN(3) {
		off := m.rng.IntN(len(n.data) + 9000)
		data := m.bytes(1 + m.rng.IntN(20_000))
		_, err := f.WriteAt(data, int64(off))
		m.want(err, nil, "write "+p)
		if need := off + len(data); need > len(n.data) {
			n.data = append(n.data, make([]byte, need-len(n.data))...)
		}
		copy(n.data[off:], data)
	}
	n.mtime = 0
	if m.rng.IntN(4) == 0 {
		m.want(f.Sync(), nil, "sync "+p)
	}
}

func (m *model) truncate() {
	p, n, _, _ := m.pick()
	if n.dir != nil || n.symlink {
		return
	}
	size := m.rng.IntN(len(n.data) + 200_000)
	m.want(m.w.Truncate(ctx, p, int64(size)), nil, "truncate "+p)
	if size > len(n.data) {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
	n.data, n.mtime = bytes.Clone(n.data[:size]), 0
}

func (m *model) remove() {
	p, n, parent, name := m.pick()
	if parent == nil {
		return
	}
	var want error
	if len(n.dir) > 0 {
		want = syscall.ENOTEMPTY
	}
	if m.want(m.w.Remove(ctx, p), want, "remove "+p) {
		delete(parent.dir, name)
		n.nlink--
	}
}

func (m *model) rename() {
	p, n, parent, name := m.pick()
	if parent == nil {
		return
	}
	dp, d := m.pickDir()
	newName := fmt.Sprintf("%c%d", 'a'+m.rng.IntN(6), m.rng.IntN(4))
	target := path.Join(dp, newName)
	old := d.dir[newName]
	var want error
	switch {
	case n.dir != nil && strings.HasPrefix(target+"/", p+"/") && target != p:
		want = syscall.EINVAL
	case old == nil || old == n:
	case n.dir != nil && old.dir == nil:
		want = syscall.ENOTDIR
	case n.dir == nil && old.dir != nil:
		want = syscall.EISDIR
	case len(old.dir) > 0:
		want = syscall.ENOTEMPTY
	}
	if m.want(m.w.RenamePath(ctx, p, target), want, "rename "+p+" "+target) && old != n {
		delete(parent.dir, name)
		if old != nil {
			old.nlink--
		}
		d.dir[newName] = n
	}
}

func (m *model) link() {
	p, n, _, _ := m.pick()
	dp, d := m.pickDir()
	name := fmt.Sprintf("h%d", m.rng.IntN(5))
	var want error
	switch {
	case d.dir[name] != nil:
		want = fs.ErrExist
	case n.dir != nil:
		want = syscall.EPERM
	}
	if m.want(m.w.LinkPath(ctx, p, path.Join(dp, name)), want, "link "+p) {
		d.dir[name] = n
		n.nlink++
	}
}

func (m *model) attrs() {
	p, n, _, _ := m.pick()
	switch m.rng.IntN(3) {
	case 0:
		if n.symlink || n == m.root {
			return
		}
		n.mode = uint32(m.rng.IntN(0o1000))
		m.want(m.w.Chmod(ctx, p, n.mode), nil, "chmod "+p)
	case 1:
		n.mtime = 1e18 + int64(m.rng.IntN(1e9))
		m.want(m.w.Lchtimes(ctx, p, 5, n.mtime), nil, "utimes "+p)
		if n.dir != nil {
			n.mtime = 0 // moves with its entries
		}
	default:
		if n.xattrs == nil {
			n.xattrs = map[string]string{}
		}
		k, v := fmt.Sprintf("user.k%d", m.rng.IntN(4)), fmt.Sprint(m.rng.Uint32())
		m.want(m.w.SetXattrPath(ctx, p, k, []byte(v)), nil, "setxattr "+p)
		n.xattrs[k] = v
	}
}

func (m *model) read() {
	p, n, _, _ := m.pick()
	m.compare(p, n)
}

func (m *model) compare(p string, n *modelNode) {
	m.t.Helper()
	a, err := m.w.Lstat(ctx, p)
	if err != nil {
		m.t.Fatalf("lstat %s: %v", p, err)
	}
	if n.dir == nil && a.Nlink != n.nlink {
		m.t.Fatalf("%s has %d links, want %d", p, a.Nlink, n.nlink)
	}
	if n != m.root && a.Mode&0o7777 != n.mode {
		m.t.Fatalf("%s has mode %o, want %o", p, a.Mode&0o7777, n.mode)
	}
	if n.mtime != 0 && a.Mtime != n.mtime {
		m.t.Fatalf("%s has mtime %d, want %d", p, a.Mtime, n.mtime)
	}
	if len(n.xattrs) > 0 {
		got, err := m.w.Xattrs(ctx, p)
		if err != nil || len(got) != len(n.xattrs) {
			m.t.Fatalf("%s: %d attributes, want %d: %v", p, len(got), len(n.xattrs), err)
		}
		for k, v := range n.xattrs {
			if string(got[k]) != v {
				m.t.Fatalf("%s: attribute %s is %q, want %q", p, k, got[k], v)
			}
		}
	}
	switch {
	case n.dir != nil:
	case n.symlink:
		if s, err := m.w.ReadlinkPath(ctx, p); err != nil || s != n.target {
			m.t.Fatalf("%s leads to %q, %v", p, s, err)
		}
	default:
		got, err := m.w.ReadFile(ctx, p)
		if err != nil || !bytes.Equal(got, n.data) {
			m.t.Fatalf("%s: %d bytes differ from the %d expected, %v", p, len(got), len(n.data), err)
		}
	}
}

func (m *model) compareAll(p string, n *modelNode) {
	m.t.Helper()
	m.compare(p, n)
	if n.dir == nil {
		return
	}
	list, err := m.w.ReadDirPath(ctx, p)
	if err != nil || len(list) != len(n.dir) {
		m.t.Fatalf("%s has %d entries, want %d: %v", p, len(list), len(n.dir), err)
	}
	for name, c := range n.dir {
		m.compareAll(path.Join(p, name), c)
	}
}

// TestAgainstModel runs random operations, commits, reopenings and losses of the host against a model of the tree. Run one
// history again with WSFS_SEED.
func TestAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WSFS_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Logf("WSFS_SEED=%d", seed+uint64(round))
			runModel(t, seed+uint64(round))
		})
	}
}

func runModel(t *testing.T, seed uint64) {
	r := newRig(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	m := &model{t: t, rng: rng, w: r.open("demo", dir), root: &modelNode{dir: map[string]*modelNode{}}}
	for range 12 {
		for range 60 {
			m.step()
		}
		switch rng.IntN(5) {
		case 0:
			must[*syncer.Commit](t)(m.w.Commit(ctx))
		case 1: // the process ends, the host stays
			ok(t, m.w.SyncLocal(ctx))
			ok(t, m.w.abandon())
			m.w = r.open("demo", dir)
		case 2: // the host is lost
			ok(t, m.w.Close(ctx))
			dir = t.TempDir()
			m.w = r.open("demo", dir)
		case 3: // small cache: clean copies go
			must[*syncer.Commit](t)(m.w.Commit(ctx))
			m.w.dropCopies(0)
			ok(t, m.w.removeDoomed())
		}
		m.compareAll("/", m.root)
		r.check(m.w)
	}
}

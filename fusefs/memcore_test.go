package fusefs

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"wsfs"
)

// memCore is a small file system in memory for the tests of this package. The content of every regular file is an unlinked
// file of dir, whose size, blocks and times are the inode's: what the kernel writes there by itself is seen at once.
type memCore struct {
	dir    string
	refuse atomic.Bool // passthrough: give no backing file
	names  sync.Map    // wsfs.Ino -> string: inodes whose READs are slow, or never end

	mu     sync.Mutex
	inodes map[wsfs.Ino]*memInode // guarded by mu
	next   wsfs.Ino               // guarded by mu
}

type memInode struct {
	attr    wsfs.Attr
	parent  wsfs.Ino
	entries []memEntry // in order of cookie
	cookie  uint64     // last given
	target  string
	xattrs  map[string][]byte
	file    *os.File
	refs    uint64 // kernel references
	opens   int
	backed  int // opens that gave the kernel the file: while there are any, all do
}

type memEntry struct {
	name   string
	ino    wsfs.Ino
	cookie uint64
}

func newMemCore(dir string) *memCore {
	m := &memCore{dir: dir, inodes: map[wsfs.Ino]*memInode{}, next: 2}
	now := time.Now().UnixNano()
	m.inodes[1] = &memInode{parent: 1, cookie: 2, attr: wsfs.Attr{Ino: 1, Mode: syscall.S_IFDIR | 0755, Nlink: 2, Atime: now, Mtime: now, Ctime: now, Btime: now}}
	return m
}

// get returns an inode; mu is held, here and in all helpers below.
func (m *memCore) get(ino wsfs.Ino) (*memInode, error) {
	if n := m.inodes[ino]; n != nil {
		return n, nil
	}
	return nil, syscall.ENOENT
}

func (n *memInode) find(name string) int {
	return slices.IndexFunc(n.entries, func(e memEntry) bool { return e.name == name })
}

func (m *memCore) child(parent wsfs.Ino, name string) (dir, n *memInode, at int, err error) {
	if dir, err = m.get(parent); err != nil {
		return
	}
	if !dir.attr.IsDir() {
		return dir, nil, -1, syscall.ENOTDIR
	}
	if at = dir.find(name); at < 0 {
		return dir, nil, at, syscall.ENOENT
	}
	return dir, m.inodes[dir.entries[at].ino], at, nil
}

func (n *memInode) stat() wsfs.Attr {
	a := n.attr
	if n.file != nil {
		var st unix.Stat_t
		if err := unix.Fstat(int(n.file.Fd()), &st); err != nil {
			panic(err)
		}
		a.Size, a.Blocks, a.Mtime, a.Atime = st.Size, st.Blocks, st.Mtim.Nano(), st.Atim.Nano()
		a.Ctime = max(a.Ctime, st.Ctim.Nano())
	}
	return a
}

func (m *memCore) touch(n *memInode) {
	n.attr.Mtime = time.Now().UnixNano()
	n.attr.Ctime = n.attr.Mtime
}

func (m *memCore) reap(n *memInode) {
	if n.attr.Nlink == 0 && n.refs == 0 && n.opens == 0 {
		if n.file != nil {
			n.file.Close()
		}
		delete(m.inodes, n.attr.Ino)
	}
}

func (m *memCore) add(dir *memInode, name string, n *memInode) {
	dir.cookie++
	dir.entries = append(dir.entries, memEntry{name, n.attr.Ino, dir.cookie})
	m.touch(dir)
}

func (m *memCore) newInode(parent *memInode, mode uint32, o wsfs.Owner) (*memInode, error) {
	now := time.Now().UnixNano()
	n := &memInode{parent: parent.attr.Ino, cookie: 2, attr: wsfs.Attr{Ino: m.next, Mode: mode, Nlink: 1, UID: o.UID, GID: o.GID, Atime: now, Mtime: now, Ctime: now, Btime: now}}
	if parent.attr.Mode&syscall.S_ISGID != 0 {
		n.attr.GID = parent.attr.GID
		if n.attr.IsDir() {
			n.attr.Mode |= syscall.S_ISGID
		}
	}
	if n.attr.IsRegular() {
		f, err := os.CreateTemp(m.dir, "staging-")
		if err != nil {
			return nil, err
		}
		os.Remove(f.Name())
		n.file = f
	}
	m.next++
	m.inodes[n.attr.Ino] = n
	return n, nil
}

func (m *memCore) make(parent wsfs.Ino, name string, mode uint32, o wsfs.Owner, init func(*memInode)) (wsfs.Attr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, _, _, err := m.child(parent, name)
	if err == nil {
		return wsfs.Attr{}, syscall.EEXIST
	}
	if err != syscall.ENOENT || dir == nil || dir.attr.Nlink == 0 {
		return wsfs.Attr{}, err
	}
	n, err := m.newInode(dir, mode, o)
	if err != nil {
		return wsfs.Attr{}, err
	}
	init(n)
	m.add(dir, name, n)
	return n.stat(), nil
}

func (m *memCore) Lookup(_ context.Context, parent wsfs.Ino, name string) (wsfs.Attr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, n, _, err := m.child(parent, name)
	if err != nil {
		return wsfs.Attr{}, err
	}
	return n.stat(), nil
}

func (m *memCore) GetAttr(_ context.Context, ino wsfs.Ino) (wsfs.Attr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return wsfs.Attr{}, err
	}
	return n.stat(), nil
}

func (m *memCore) Readlink(_ context.Context, ino wsfs.Ino) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return "", err
	}
	return n.target, nil
}

func (m *memCore) ReadDir(_ context.Context, ino wsfs.Ino, cookie uint64, fn func(wsfs.DirEntry) bool) error {
	m.mu.Lock()
	n, err := m.get(ino)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	list := []wsfs.DirEntry{{Name: ".", Ino: ino, Type: unix.DT_DIR, Cookie: 1}, {Name: "..", Ino: n.parent, Type: unix.DT_DIR, Cookie: 2}}
	for _, e := range n.entries {
		list = append(list, wsfs.DirEntry{Name: e.name, Ino: e.ino, Type: uint8(m.inodes[e.ino].attr.Mode >> 12), Cookie: e.cookie})
	}
	m.mu.Unlock()
	for _, e := range list {
		if e.Cookie > cookie && !fn(e) {
			break
		}
	}
	return nil
}

func (m *memCore) Statfs(context.Context) (wsfs.Statfs, error) {
	return wsfs.Statfs{Total: 1 << 40, Free: 1 << 39, Avail: 1 << 38, Files: 1000, FreeFiles: 900}, nil
}

func (m *memCore) Mkdir(_ context.Context, parent wsfs.Ino, name string, mode uint32, o wsfs.Owner) (wsfs.Attr, error) {
	return m.make(parent, name, syscall.S_IFDIR|mode, o, func(n *memInode) {
		n.attr.Nlink = 2
		m.inodes[parent].attr.Nlink++
	})
}

func (m *memCore) Mknod(_ context.Context, parent wsfs.Ino, name string, mode, rdev uint32, o wsfs.Owner) (wsfs.Attr, error) {
	return m.make(parent, name, mode, o, func(n *memInode) { n.attr.Rdev = rdev })
}

func (m *memCore) Symlink(_ context.Context, parent wsfs.Ino, name, target string, o wsfs.Owner) (wsfs.Attr, error) {
	return m.make(parent, name, syscall.S_IFLNK|0777, o, func(n *memInode) { n.target, n.attr.Size = target, int64(len(target)) })
}

func (m *memCore) Link(_ context.Context, ino, parent wsfs.Ino, name string) (wsfs.Attr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return wsfs.Attr{}, err
	}
	dir, _, _, err := m.child(parent, name)
	if err == nil {
		return wsfs.Attr{}, syscall.EEXIST
	}
	if err != syscall.ENOENT || dir == nil {
		return wsfs.Attr{}, err
	}
	n.attr.Nlink++
	n.attr.Ctime = time.Now().UnixNano()
	m.add(dir, name, n)
	return n.stat(), nil
}

func (m *memCore) SetAttr(_ context.Context, ino wsfs.Ino, s wsfs.SetAttr) (wsfs.Attr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return wsfs.Attr{}, err
	}
	a := &n.attr
	if s.Mask&wsfs.SetMode != 0 {
		a.Mode = a.Mode&syscall.S_IFMT | s.Mode
	}
	if s.Mask&wsfs.SetUID != 0 {
		a.UID = s.UID
	}
	if s.Mask&wsfs.SetGID != 0 {
		a.GID = s.GID
	}
	if s.Mask&wsfs.SetKillPriv != 0 {
		a.Mode &^= syscall.S_ISUID
		if a.Mode&syscall.S_IXGRP != 0 {
			a.Mode &^= syscall.S_ISGID
		}
	}
	if s.Mask&wsfs.SetSize != 0 {
		if err := n.file.Truncate(s.Size); err != nil {
			return wsfs.Attr{}, err
		}
	}
	if err := n.setTimes(s); err != nil {
		return wsfs.Attr{}, err
	}
	a.Ctime = time.Now().UnixNano()
	if s.Mask&wsfs.SetCtime != 0 {
		a.Ctime = s.Ctime
	}
	return n.stat(), nil
}

func (n *memInode) setTimes(s wsfs.SetAttr) error {
	ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	now := time.Now().UnixNano()
	for i, c := range [2]struct {
		set, now wsfs.SetMask
		given    int64
		field    *int64
	}{{wsfs.SetAtime, wsfs.SetAtimeNow, s.Atime, &n.attr.Atime}, {wsfs.SetMtime, wsfs.SetMtimeNow, s.Mtime, &n.attr.Mtime}} {
		switch {
		case s.Mask&c.set != 0:
			*c.field = c.given
		case s.Mask&c.now != 0:
			*c.field = now
		default:
			continue
		}
		ts[i] = unix.NsecToTimespec(*c.field)
	}
	if n.file == nil {
		return nil
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, n.file.Fd(), 0, uintptr(ptr(&ts[0])), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (m *memCore) unlink(parent wsfs.Ino, name string, dirWanted bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, n, at, err := m.child(parent, name)
	if err != nil {
		return err
	}
	switch {
	case dirWanted && !n.attr.IsDir():
		return syscall.ENOTDIR
	case !dirWanted && n.attr.IsDir():
		return syscall.EISDIR
	case dirWanted && len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	m.detach(dir, n, at)
	return nil
}

func (m *memCore) detach(dir, n *memInode, at int) {
	dir.entries = slices.Delete(dir.entries, at, at+1)
	m.touch(dir)
	if n.attr.IsDir() {
		n.attr.Nlink = 0
		dir.attr.Nlink--
	} else {
		n.attr.Nlink--
	}
	n.attr.Ctime = time.Now().UnixNano()
	m.reap(n)
}

func (m *memCore) Unlink(_ context.Context, parent wsfs.Ino, name string) error {
	return m.unlink(parent, name, false)
}

func (m *memCore) Rmdir(_ context.Context, parent wsfs.Ino, name string) error {
	return m.unlink(parent, name, true)
}

func (m *memCore) Rename(_ context.Context, parent wsfs.Ino, name string, newParent wsfs.Ino, newName string, flags uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, n, at, err := m.child(parent, name)
	if err != nil {
		return err
	}
	to, old, oldAt, err := m.child(newParent, newName)
	if err != nil && err != syscall.ENOENT {
		return err
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		if old == nil {
			return syscall.ENOENT
		}
		from.entries[at].ino, to.entries[oldAt].ino = old.attr.Ino, n.attr.Ino
		n.parent, old.parent = newParent, parent
		return nil
	}
	if old == n {
		return nil
	}
	if old != nil {
		switch {
		case flags&unix.RENAME_NOREPLACE != 0:
			return syscall.EEXIST
		case old.attr.IsDir() && len(old.entries) > 0:
			return syscall.ENOTEMPTY
		}
		m.detach(to, old, oldAt)
		at = from.find(name)
	}
	from.entries = slices.Delete(from.entries, at, at+1)
	m.touch(from)
	m.add(to, newName, n)
	if n.attr.IsDir() {
		from.attr.Nlink--
		to.attr.Nlink++
	}
	n.parent = newParent
	return nil
}

func (m *memCore) Create(ctx context.Context, parent wsfs.Ino, name string, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
	a, err := m.make(parent, name, syscall.S_IFREG|mode, own, func(*memInode) {})
	if err == syscall.EEXIST && !o.Excl {
		a, err = m.Lookup(ctx, parent, name)
	}
	if err != nil {
		return a, nil, err
	}
	h, err := m.OpenInode(ctx, a.Ino, o)
	if err != nil {
		return a, nil, err
	}
	a, err = m.GetAttr(ctx, a.Ino) // O_TRUNC moved its times
	return a, h, err
}

func (m *memCore) Tmpfile(ctx context.Context, parent wsfs.Ino, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
	m.mu.Lock()
	dir, err := m.get(parent)
	if err != nil {
		m.mu.Unlock()
		return wsfs.Attr{}, nil, err
	}
	n, err := m.newInode(dir, syscall.S_IFREG|mode, own)
	if err != nil {
		m.mu.Unlock()
		return wsfs.Attr{}, nil, err
	}
	n.attr.Nlink = 0
	m.mu.Unlock()
	h, err := m.OpenInode(ctx, n.attr.Ino, o)
	return n.stat(), h, err
}

func (m *memCore) OpenInode(_ context.Context, ino wsfs.Ino, o wsfs.OpenOptions) (handle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, syscall.EISDIR
	}
	if o.Truncate {
		if err := n.file.Truncate(0); err != nil {
			return nil, err
		}
	}
	n.opens++
	h := &memHandle{core: m, n: n}
	if o.Passthrough && (n.backed > 0 || !m.refuse.Load()) {
		h.backing = n.file
		n.backed++
	}
	return h, nil
}

func (m *memCore) CopyRange(ctx context.Context, src handle, off int64, dst handle, dstOff, n int64) (int64, error) {
	from, to := src.(*memHandle).n.file, dst.(*memHandle).n.file
	buf := make([]byte, n)
	got, err := from.ReadAt(buf, off)
	if err != nil && err != io.EOF {
		return 0, err
	}
	put, err := to.WriteAt(buf[:got], dstOff)
	return int64(put), err
}

func (m *memCore) SyncLocal(context.Context) error { return nil }

func (m *memCore) Retain(ino wsfs.Ino, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.inodes[ino]; i != nil {
		i.refs += n
	}
}

func (m *memCore) Forget(ino wsfs.Ino, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.inodes[ino]; i != nil {
		if i.refs < n {
			panic("more forgotten than retained")
		}
		i.refs -= n
		m.reap(i)
	}
}

// counts returns the number of inodes and the sum of references the kernel holds, the root aside.
func (m *memCore) counts() (inodes int, refs uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ino, n := range m.inodes {
		if ino != 1 {
			inodes++
			refs += n.refs
		}
	}
	return inodes, refs
}

type memHandle struct {
	core    *memCore
	n       *memInode
	backing *os.File
}

func (h *memHandle) Ino() wsfs.Ino     { return h.n.attr.Ino }
func (h *memHandle) Backing() *os.File { return h.backing }

func (h *memHandle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	switch name, _ := h.core.names.Load(h.n.attr.Ino); name {
	case "slow":
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(2 * time.Second):
		}
	case "never":
		<-ctx.Done()
		return 0, ctx.Err()
	}
	n, err := h.n.file.ReadAt(p, off)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

func (h *memHandle) WriteAt(_ context.Context, p []byte, off int64) (int, error) {
	return h.n.file.WriteAt(p, off)
}

func (h *memHandle) Allocate(_ context.Context, mode uint32, off, n int64) error {
	return unix.Fallocate(int(h.n.file.Fd()), mode, off, n)
}

func (h *memHandle) Seek(_ context.Context, off int64, whence int) (int64, error) {
	return unix.Seek(int(h.n.file.Fd()), off, whence)
}

func (h *memHandle) Sync(context.Context) error { return h.n.file.Sync() }

func (h *memHandle) Close() error {
	h.core.mu.Lock()
	defer h.core.mu.Unlock()
	h.n.opens--
	if h.backing != nil {
		h.n.backed--
	}
	h.core.reap(h.n)
	return nil
}

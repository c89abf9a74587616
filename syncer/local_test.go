package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"wsfs/blobs"
	"wsfs/metadata"
)

// fakeLocal is a small live side: an overlay of keys over a base tree, journal contents in a map, staging files in a
// real directory.
type fakeLocal struct {
	t   testing.TB
	dir string

	mu      sync.Mutex // guards everything below
	base    *metadata.Tree
	head    Commit
	over    map[string][]byte // nil value: tombstone
	changed map[string]uint64 // seq of the key's last change; only dirty keys
	content map[metadata.Ino][]byte
	settled map[metadata.Ino]Stamp // of live files, at their last commit
	seq     uint64
	nextIno metadata.Ino
	number  uint64 // of the last staging file
	known   map[blobs.ID]blobs.Ref
	marks   map[string]string
	history []Settlement
	failing error // Settle fails with it
	freezes int
	opens   int             // staging files opened and not closed
	thaw    func(f Frozen)  // called at each Freeze, without the lock
	onOpen  func(n uint64)  // called at each OpenStaging
	synced  map[uint64]bool // staging files that were synced
}

func newFakeLocal(t testing.TB, base *metadata.Tree, head *Commit) *fakeLocal {
	l := &fakeLocal{t: t, dir: t.TempDir(), content: map[metadata.Ino][]byte{}, settled: map[metadata.Ino]Stamp{},
		known: map[blobs.ID]blobs.Ref{}, marks: map[string]string{}, synced: map[uint64]bool{}}
	l.rebase(base, head)
	return l
}

// rebase drops everything local and goes on from a commit.
func (l *fakeLocal) rebase(base *metadata.Tree, head *Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.head = base, *head
	l.over, l.changed = map[string][]byte{}, map[string]uint64{}
	v, ok, err := base.Get(context.Background(), metadata.SuperKey())
	if err != nil || !ok {
		l.t.Fatalf("superblock of the base: %v, %v", ok, err)
	}
	s, err := metadata.DecodeSuper(v)
	if err != nil {
		l.t.Fatal(err)
	}
	l.nextIno = max(l.nextIno, s.NextIno)
}

func (l *fakeLocal) get(key []byte) ([]byte, bool) {
	if v, ok := l.over[string(key)]; ok {
		return v, v != nil
	}
	v, ok, err := l.base.Get(context.Background(), key)
	if err != nil {
		l.t.Fatalf("base tree: %v", err)
	}
	return v, ok
}

func (l *fakeLocal) set(key, value []byte) {
	l.over[string(key)] = value
	l.changed[string(key)] = l.seq
}

func (l *fakeLocal) inode(ino metadata.Ino) *metadata.Inode {
	v, ok := l.get(metadata.InodeKey(ino))
	if !ok {
		l.t.Fatalf("inode %d is not there", ino)
	}
	n, err := metadata.DecodeInode(ino, v)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *fakeLocal) setInode(n *metadata.Inode) {
	l.set(metadata.InodeKey(n.Ino), metadata.AppendInode(nil, n))
}

// op runs one op under the lock and gives it a sequence number.
func (l *fakeLocal) op(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	fn()
}

// make adds an inode of the given type to a directory.
func (l *fakeLocal) make(dir metadata.Ino, name string, mode uint32) metadata.Ino {
	var ino metadata.Ino
	l.op(func() {
		ino = l.nextIno
		l.nextIno++
		l.set(metadata.SuperKey(), metadata.AppendSuper(nil, metadata.Super{NextIno: l.nextIno}))
		n := &metadata.Inode{Ino: ino, Mode: mode, Nlink: 1, Mtime: int64(l.seq), Ctime: int64(l.seq)}
		p := l.inode(dir)
		p.Entries++
		typ := uint8(syscall.DT_REG)
		if n.IsDir() {
			n.Nlink, n.Parent, typ = 2, dir, syscall.DT_DIR
			p.Nlink++
		}
		l.setInode(p)
		l.setInode(n)
		l.set(metadata.DirentKey(dir, name), metadata.AppendDirent(nil, metadata.Dirent{Ino: ino, Type: typ}))
	})
	return ino
}

func (l *fakeLocal) mkdir(dir metadata.Ino, name string) metadata.Ino {
	return l.make(dir, name, syscall.S_IFDIR|0o755)
}

// write gives a file its whole content: in the journal, or staged if that is what is asked for.
func (l *fakeLocal) write(ino metadata.Ino, content []byte, staged bool) {
	l.op(func() { l.writeLocked(ino, content, staged) })
}

func (l *fakeLocal) writeLocked(ino metadata.Ino, content []byte, staged bool) {
	n := l.inode(ino)
	n.Size, n.Alloc, n.Version, n.Mtime = int64(len(content)), int64(len(content)), l.seq, int64(l.seq)
	n.Inline, n.Ref, n.Staging, n.Live = nil, blobs.Ref{}, 0, false
	delete(l.content, ino)
	if staged {
		l.number++
		n.Content, n.Staging = metadata.ContentStaged, l.number
		if err := os.WriteFile(l.path(l.number), content, 0o600); err != nil {
			l.t.Fatal(err)
		}
	} else {
		n.Content = metadata.ContentJournal
		l.content[ino] = bytes.Clone(content)
	}
	l.setInode(n)
}

// stageLive stages a file and opens it for writing behind our back: the file is returned.
func (l *fakeLocal) stageLive(ino metadata.Ino, content []byte) *os.File {
	var number uint64
	l.op(func() {
		l.writeLocked(ino, content, true)
		n := l.inode(ino)
		n.Live, number = true, n.Staging
		l.setInode(n)
	})
	f, err := os.OpenFile(l.path(number), os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { f.Close() })
	return f
}

// closeLive ends the time a file may be written behind our back, as the last close of it does.
func (l *fakeLocal) closeLive(ino metadata.Ino) {
	l.op(func() {
		n := l.inode(ino)
		s, err := stampOf(l.path(n.Staging))
		if err != nil {
			l.t.Fatal(err)
		}
		if s != l.settled[ino] {
			n.Version = l.seq
		}
		n.Live, n.Size, n.Mtime = false, s.Size, s.Mtime
		l.setInode(n)
	})
}

func (l *fakeLocal) create(dir metadata.Ino, name string, content []byte) metadata.Ino {
	ino := l.make(dir, name, syscall.S_IFREG|0o644)
	l.write(ino, content, len(content) > 128<<10)
	return ino
}

func (l *fakeLocal) setxattr(ino metadata.Ino, name string, value []byte) {
	l.op(func() {
		n := l.inode(ino)
		n.Xattrs++
		l.setInode(n)
		l.set(metadata.XattrKey(ino, name), value)
	})
}

// unlink removes a file; kept open it becomes an orphan.
func (l *fakeLocal) unlink(dir metadata.Ino, name string, open bool) {
	l.op(func() {
		v, ok := l.get(metadata.DirentKey(dir, name))
		if !ok {
			l.t.Fatalf("%q is not there", name)
		}
		e, err := metadata.DecodeDirent(v)
		if err != nil {
			l.t.Fatal(err)
		}
		l.set(metadata.DirentKey(dir, name), nil)
		p, n := l.inode(dir), l.inode(e.Ino)
		p.Entries--
		l.setInode(p)
		n.Nlink--
		if open {
			l.setInode(n)
			return
		}
		l.set(metadata.InodeKey(e.Ino), nil)
		delete(l.content, e.Ino)
	})
}

func (l *fakeLocal) path(number uint64) string { return filepath.Join(l.dir, fmt.Sprint(number)) }

func stampOf(path string) (Stamp, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return Stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return Stamp{Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}, nil
}

func (l *fakeLocal) Freeze(context.Context) (Frozen, error) {
	l.mu.Lock()
	f := &fakeFrozen{seq: l.seq, values: map[string][]byte{}, content: map[metadata.Ino][]byte{}, stamps: map[uint64]Stamp{},
		settled: maps.Clone(l.settled)}
	for key := range l.changed {
		f.keys = append(f.keys, key)
		f.values[key] = l.over[key]
		if key[0] != metadata.KeyInode || l.over[key] == nil {
			continue
		}
		ino, _ := metadata.ParseInoKey([]byte(key))
		n := l.inode(ino)
		if n.Content == metadata.ContentJournal {
			f.content[ino] = l.content[ino]
		}
		if n.Content == metadata.ContentStaged && n.Live {
			s, err := stampOf(l.path(n.Staging))
			if err != nil {
				l.mu.Unlock()
				return nil, err
			}
			f.stamps[n.Staging] = s
		}
	}
	slices.Sort(f.keys)
	l.freezes++
	hook := l.thaw
	l.mu.Unlock()
	if hook != nil {
		hook(f)
	}
	return f, nil
}

type fakeFrozen struct {
	seq     uint64
	keys    []string
	values  map[string][]byte
	content map[metadata.Ino][]byte
	stamps  map[uint64]Stamp
	settled map[metadata.Ino]Stamp
	closed  bool
}

func (f *fakeFrozen) Seq() uint64 { return f.seq }

func (f *fakeFrozen) Dirty(fn func(key []byte) error) error {
	var key []byte // reused: a key is valid only during the call
	for _, k := range f.keys {
		if f.closed {
			return errors.New("frozen state used after Close")
		}
		key = append(key[:0], k...)
		if err := fn(key); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeFrozen) Get(key []byte) ([]byte, bool, error) {
	v, ok := f.values[string(key)]
	if !ok || f.closed {
		return nil, false, fmt.Errorf("key %x was asked for and is not dirty, or closed %v", key, f.closed)
	}
	return v, v != nil, nil
}

func (f *fakeFrozen) Content(ino metadata.Ino) ([]byte, error) {
	c, ok := f.content[ino]
	if !ok {
		return nil, fmt.Errorf("inode %d has no content in the journal", ino)
	}
	return c, nil
}

func (f *fakeFrozen) Stamp(number uint64) (Stamp, bool) { s, ok := f.stamps[number]; return s, ok }

func (f *fakeFrozen) Settled(ino metadata.Ino, number uint64) bool {
	s, ok := f.settled[ino]
	return ok && s == f.stamps[number]
}

func (f *fakeFrozen) Close() { f.closed = true }

func (l *fakeLocal) OpenStaging(number uint64) (Staging, error) {
	l.mu.Lock()
	hook := l.onOpen
	l.mu.Unlock()
	if hook != nil {
		hook(number)
	}
	f, err := os.Open(l.path(number))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens++
	return &fakeStaging{File: f, l: l, number: number}, nil
}

type fakeStaging struct {
	*os.File
	l      *fakeLocal
	number uint64
}

func (s *fakeStaging) Stamp() (Stamp, error) { return stampOf(s.Name()) }

func (s *fakeStaging) Sync() error {
	s.l.mu.Lock()
	s.l.synced[s.number] = true
	s.l.mu.Unlock()
	return s.File.Sync()
}

func (s *fakeStaging) Close() error {
	s.l.mu.Lock()
	s.l.opens--
	s.l.mu.Unlock()
	return s.File.Close()
}

func (s *fakeStaging) Data(off int64) (start, end int64, err error) {
	const seekData, seekHole = 3, 4
	st, err := s.Stat()
	if err != nil {
		return 0, 0, err
	}
	start, err = s.Seek(off, seekData)
	if errors.Is(err, syscall.ENXIO) {
		return st.Size(), st.Size(), nil
	}
	if err != nil {
		return 0, 0, err
	}
	end, err = s.Seek(start, seekHole)
	return start, end, err
}

func (l *fakeLocal) Settle(_ context.Context, s Settlement) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing != nil {
		return l.failing
	}
	l.history = append(l.history, s)
	l.base, l.head = s.Tree, s.Commit
	stays := map[metadata.Ino]bool{}
	for _, ino := range s.Unstable {
		stays[ino] = true
	}
	for _, f := range s.Files {
		l.settleFile(f, s.Seq, stays)
	}
	for key, seq := range l.changed {
		if ino, err := metadata.ParseInoKey([]byte(key)); err == nil && key[0] != metadata.KeyDirent {
			if v := l.over[string(metadata.InodeKey(ino))]; v != nil {
				n, err := metadata.DecodeInode(ino, v)
				if err != nil {
					return err
				}
				stays[ino] = stays[ino] || n.Nlink == 0
			}
			if stays[ino] {
				continue
			}
		}
		if seq <= s.Seq {
			delete(l.over, key)
			delete(l.changed, key)
		}
	}
	return nil
}

// settleFile makes a file clean if it is as it was committed.
func (l *fakeLocal) settleFile(f SettledFile, seq uint64, stays map[metadata.Ino]bool) {
	v, ok := l.over[string(metadata.InodeKey(f.Ino))]
	if !ok || v == nil {
		return
	}
	n := l.inode(f.Ino)
	if n.Version != f.Version || !n.Content.Local() {
		stays[f.Ino] = true
		return
	}
	if n.Content == metadata.ContentStaged {
		now, err := stampOf(l.path(n.Staging))
		if err != nil {
			l.t.Errorf("settling inode %d: %v", f.Ino, err)
		}
		if n.Live {
			l.settled[f.Ino] = f.Stamp
		}
		if n.Live || now != f.Stamp {
			stays[f.Ino] = true
			return
		}
	}
	if l.changed[string(metadata.InodeKey(f.Ino))] > seq { // attributes changed since: the content alone is clean
		n.Content, n.Inline, n.Ref, n.Size, n.Alloc, n.Staging = f.Content, f.Inline, f.Ref, f.Size, f.Alloc, 0
		l.over[string(metadata.InodeKey(f.Ino))] = metadata.AppendInode(nil, n)
	}
	delete(l.content, f.Ino)
}

func (l *fakeLocal) Locate(id blobs.ID) (blobs.Ref, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ref, ok := l.known[id]
	return ref, ok, nil
}

func (l *fakeLocal) Remember(refs []blobs.Ref) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range refs {
		l.known[r.ID] = r
	}
	return nil
}

func (l *fakeLocal) Mark(name string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks[name], nil
}

func (l *fakeLocal) SetMark(name, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[name] = value
	return nil
}

func (l *fakeLocal) dirty() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.changed)
}

// readFile reads a file of a tree through a chunk reader.
func readFile(ctx context.Context, tree *metadata.Tree, r *blobs.Reader, n *metadata.Inode) ([]byte, error) {
	content := make([]byte, n.Size)
	switch n.Content {
	case metadata.ContentNone:
	case metadata.ContentInline:
		return n.Inline, nil
	case metadata.ContentOne:
		return r.Chunk(ctx, n.Ref)
	case metadata.ContentExtents:
		prefix := metadata.ExtentPrefix(n.Ino)
		err := tree.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, value []byte) error {
			_, off, err := metadata.ParseExtentKey(key)
			if err != nil {
				return err
			}
			e, err := metadata.DecodeExtent(off, value)
			if err != nil {
				return err
			}
			chunk, err := r.Chunk(ctx, e.Ref)
			if err != nil {
				return err
			}
			if copy(content[e.Off:], chunk[e.Skip:int64(e.Skip)+e.Len]) != int(e.Len) {
				return io.ErrShortWrite
			}
			return nil
		})
		return content, err
	default:
		return nil, fmt.Errorf("inode %d: local content %d in a tree", n.Ino, n.Content)
	}
	return content, nil
}

// filesOf checks a commit's tree for consistency and returns every file's content by path.
func filesOf(t testing.TB, repo *Repo, c *Commit) map[string]string {
	t.Helper()
	ctx := context.Background()
	r := repo.Reader(blobs.ReaderOptions{})
	defer r.Close()
	tree := OpenTree(c, r, nil)
	report, err := metadata.Check(ctx, tree, metadata.CheckOptions{})
	if err != nil {
		t.Fatalf("commit %d: check: %v", c.Number, err)
	}
	for _, p := range report.Problems {
		t.Errorf("commit %d: %s", c.Number, p)
	}
	if got := report.Counts.Inodes; got != c.Stats.Inodes {
		t.Errorf("commit %d: %d inodes, its stats say %d", c.Number, got, c.Stats.Inodes)
	}
	files := map[string]string{}
	var walk func(dir metadata.Ino, path string)
	walk = func(dir metadata.Ino, path string) {
		prefix := metadata.DirentPrefix(dir)
		err := tree.Scan(ctx, prefix, metadata.PrefixEnd(prefix), func(key, value []byte) error {
			_, _, name, err := metadata.ParseDirentKey(key)
			if err != nil {
				return err
			}
			e, err := metadata.DecodeDirent(value)
			if err != nil {
				return err
			}
			if e.Type == syscall.DT_DIR {
				walk(e.Ino, path+name+"/")
				return nil
			}
			v, ok, err := tree.Get(ctx, metadata.InodeKey(e.Ino))
			if err != nil || !ok {
				return fmt.Errorf("inode %d: %v %w", e.Ino, ok, err)
			}
			n, err := metadata.DecodeInode(e.Ino, v)
			if err != nil {
				return err
			}
			content, err := readFile(ctx, tree, r, n)
			files[strings.TrimSuffix(path+name, "/")] = string(content)
			return err
		})
		if err != nil {
			t.Fatalf("commit %d: reading %s: %v", c.Number, path, err)
		}
	}
	walk(metadata.RootIno, "")
	return files
}

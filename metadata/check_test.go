package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"wsfs/blobs"
)

// world is a key space a test changes key by key.
type world struct {
	keys map[string][]byte
}

func (w *world) put(key, value []byte) { w.keys[string(key)] = value }
func (w *world) del(key []byte)        { delete(w.keys, string(key)) }

func (w *world) inode(n Inode) { w.put(InodeKey(n.Ino), AppendInode(nil, &n)) }

func (w *world) entry(dir Ino, name string, ino Ino, typ uint8) {
	w.put(DirentKey(dir, name), AppendDirent(nil, Dirent{ino, typ}))
}

func (w *world) extent(ino Ino, off, n int64, skip uint32) {
	e := Extent{Off: off, Len: n, Skip: skip, Ref: chunk(int64(skip) + n)}
	w.put(ExtentKey(ino, off), AppendExtent(nil, e))
}

// edit changes one inode record.
func (w *world) edit(ino Ino, change func(*Inode)) {
	n, err := DecodeInode(ino, w.keys[string(InodeKey(ino))])
	if err != nil {
		panic(err)
	}
	change(n)
	w.inode(*n)
}

func (w *world) super(change func(*Super)) {
	s, err := DecodeSuper(w.keys[string(SuperKey())])
	if err != nil {
		panic(err)
	}
	change(&s)
	w.put(SuperKey(), AppendSuper(nil, s))
}

// tree makes the key space a tree of small pages.
func (w *world) tree(t testing.TB) *Tree {
	var list []Change
	for _, k := range slices.Sorted(maps.Keys(w.keys)) {
		list = append(list, Change{[]byte(k), w.keys[k]})
	}
	pages := newMemPages()
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 512), pages, list...)
	return tr
}

func chunk(raw int64) blobs.Ref {
	return blobs.Ref{ID: blobs.IDOf(fmt.Append(nil, raw)), Raw: uint32(raw)}
}

const (
	dir, reg, lnk, chr = syscall.S_IFDIR | 0o755, syscall.S_IFREG | 0o644, syscall.S_IFLNK | 0o777, syscall.S_IFCHR
	dtDir, dtReg       = syscall.DT_DIR, syscall.DT_REG
)

// sound is a key space with everything in it and nothing wrong:
//
//	/ (1)
//	/a (2)           two attributes
//	/a/b (3)
//	/a/b/deep (4)    10,000 bytes in extents with a hole
//	/a/one (5)       one chunk; also /hard
//	/small (6)       inline, one attribute
//	/link (7)  /tty (8)  /hole (9)  /empty (10)
//	an orphan (12)
func sound() *world {
	w := &world{keys: map[string][]byte{}}
	w.inode(Inode{Ino: 1, Mode: dir, Nlink: 3, Parent: 1, Entries: 7})
	w.inode(Inode{Ino: 2, Mode: dir, Nlink: 3, Parent: 1, Entries: 2, Xattrs: 2})
	w.inode(Inode{Ino: 3, Mode: dir, Nlink: 2, Parent: 2, Entries: 1})
	w.inode(Inode{Ino: 4, Mode: reg, Nlink: 1, Size: 10000, Alloc: 6000, Content: ContentExtents})
	w.inode(Inode{Ino: 5, Mode: reg, Nlink: 2, Size: 777, Alloc: 777, Content: ContentOne, Ref: chunk(777)})
	w.inode(Inode{Ino: 6, Mode: reg, Nlink: 1, Size: 5, Alloc: 5, Content: ContentInline, Inline: []byte("hello"), Xattrs: 1})
	w.inode(Inode{Ino: 7, Mode: lnk, Nlink: 1, Size: 5, Alloc: 5, Content: ContentInline, Inline: []byte("small")})
	w.inode(Inode{Ino: 8, Mode: chr, Nlink: 1, Rdev: 5})
	w.inode(Inode{Ino: 9, Mode: reg, Nlink: 1, Size: 1 << 40})
	w.inode(Inode{Ino: 10, Mode: reg, Nlink: 1, Content: ContentExtents})
	w.inode(Inode{Ino: 12, Mode: reg, Size: 9, Alloc: 9, Content: ContentInline, Inline: []byte("forgotten")})
	w.extent(4, 0, 1000, 0)
	w.extent(4, 1000, 2000, 50)
	w.extent(4, 7000, 3000, 0)
	w.put(XattrKey(2, "user.x"), []byte("1"))
	w.put(XattrKey(2, "user.y"), []byte{})
	w.put(XattrKey(6, "user.x"), bytes.Repeat([]byte("x"), 64<<10))
	w.entry(1, "a", 2, dtDir)
	w.entry(2, "b", 3, dtDir)
	w.entry(3, "deep", 4, dtReg)
	w.entry(2, "one", 5, dtReg)
	w.entry(1, "hard", 5, dtReg)
	w.entry(1, "small", 6, dtReg)
	w.entry(1, "link", 7, syscall.DT_LNK)
	w.entry(1, "tty", 8, syscall.DT_CHR)
	w.entry(1, "hole", 9, dtReg)
	w.entry(1, "empty", 10, dtReg)
	w.put(SuperKey(), AppendSuper(nil, Super{NextIno: 13, Inodes: 10, Bytes: 6000 + 777 + 5 + 5}))
	return w
}

func TestCheckOfSoundTree(t *testing.T) {
	refs := map[Ino]int{}
	r, err := Check(context.Background(), sound().tree(t), CheckOptions{Refs: func(_ blobs.Ref, ino Ino) { refs[ino]++ }})
	if err != nil || !r.OK() {
		t.Fatalf("%v: %v", r.Problems, err)
	}
	want := Counts{Inodes: 10, Files: 5, Dirs: 3, Symlinks: 1, Other: 1, Orphans: 1, Bytes: 6787, Entries: 10, Xattrs: 3, Extents: 3}
	if r.Counts != want {
		t.Errorf("counts %+v, want %+v", r.Counts, want)
	}
	if !maps.Equal(refs, map[Ino]int{4: 3, 5: 1}) {
		t.Errorf("references %v", refs)
	}
	if n := unsafe.Sizeof(mark{}); n != 32 {
		t.Errorf("a mark takes %d bytes", n)
	}
}

// TestCheckFindsEach breaks one invariant after the other and expects exactly the problems listed: path or inode, and
// a part of what is said.
func TestCheckFindsEach(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(w *world)
		want   []string
	}{
		"no superblock":         {func(w *world) { w.del(SuperKey()) }, []string{"there is no superblock"}},
		"damaged superblock":    {func(w *world) { w.put(SuperKey(), []byte{9}) }, []string{"superblock: malformed"}},
		"superblock inodes":     {func(w *world) { w.super(func(s *Super) { s.Inodes++ }) }, []string{"counts 11 inodes, there are 10"}},
		"superblock bytes":      {func(w *world) { w.super(func(s *Super) { s.Bytes-- }) }, []string{"counts 6786 bytes, there are 6787"}},
		"next inode":            {func(w *world) { w.super(func(s *Super) { s.NextIno = 12 }) }, []string{"inode 12: the superblock would give out inode 12"}},
		"name hash":             {misfileEntry, []string{"/small (inode 6): entry \"small\" of directory 1: hash"}},
		"name with slash":       {badName("sm/all"), []string{"/sm/all (inode 6): entry \"sm/all\" of directory 1: the name has a slash"}},
		"name with NUL":         {badName("a\x00b"), []string{"(inode 6): entry \"a\\x00b\" of directory 1: the name has a slash or a NUL"}},
		"name dot":              {badName("."), []string{"(inode 6): entry \".\" of directory 1: the name is reserved"}},
		"name dot dot":          {badName(".."), []string{"(inode 6): entry \"..\" of directory 1: the name is reserved"}},
		"name too long":         {badName(strings.Repeat("n", 256)), []string{"want a name of 1 to 255 bytes"}},
		"entry of no inode":     {func(w *world) { w.del(InodeKey(9)); w.super(func(s *Super) { s.Inodes-- }) }, []string{"/hole (inode 9): entry \"hole\" of directory 1 names an inode that does not exist"}},
		"entry type":            {func(w *world) { w.entry(1, "small", 6, syscall.DT_LNK) }, []string{"/small (inode 6): entry \"small\" of directory 1 has type 10, the inode 8"}},
		"damaged entry":         {func(w *world) { w.put(DirentKey(1, "small"), []byte{1}) }, []string{"/small (inode 1): entry \"small\": dirent: malformed", "/ (inode 1): counts 7 entries, there are 6", "inode 6: link count 1, but 0 entries"}},
		"malformed entry key":   {func(w *world) { w.put([]byte("d123"), []byte{1}) }, []string{"dirent key 64313233: malformed"}},
		"entry in no directory": {func(w *world) { w.entry(99, "x", 6, dtReg); w.edit(6, func(n *Inode) { n.Nlink = 2 }) }, []string{"inode 99: entry \"x\" (inode 6) lies in a directory that does not exist"}},
		"entry in a file":       {func(w *world) { w.entry(8, "x", 6, dtReg); w.edit(6, func(n *Inode) { n.Nlink = 2 }) }, []string{"/tty (inode 8): entry \"x\" (inode 6) lies in something that is no directory"}},
		"link count of a file":  {func(w *world) { w.edit(5, func(n *Inode) { n.Nlink = 3 }) }, []string{"(inode 5): link count 3, but 2 entries"}},
		"unreachable file":      {func(w *world) { w.del(DirentKey(1, "small")); w.edit(1, func(n *Inode) { n.Entries-- }) }, []string{"inode 6: link count 1, but 0 entries"}},
		"entry of an orphan":    {func(w *world) { w.entry(1, "o", 12, dtReg); w.edit(1, func(n *Inode) { n.Entries++ }) }, []string{"/o (inode 12): link count 0, but 1 entries"}},
		"directory link count":  {func(w *world) { w.edit(2, func(n *Inode) { n.Nlink = 2 }) }, []string{"/a (inode 2): link count 2, but 1 subdirectories"}},
		"root link count":       {func(w *world) { w.edit(1, func(n *Inode) { n.Nlink = 0 }); w.super(func(s *Super) { s.Inodes-- }) }, []string{"/ (inode 1): link count 0, but 1 subdirectories"}},
		"entry count":           {func(w *world) { w.edit(2, func(n *Inode) { n.Entries = 3 }) }, []string{"/a (inode 2): counts 3 entries, there are 2"}},
		"entries of a file":     {func(w *world) { w.edit(6, func(n *Inode) { n.Entries = 1 }) }, []string{"/small (inode 6): is no directory but has 1 entries"}},
		"parent":                {func(w *world) { w.edit(3, func(n *Inode) { n.Parent = 1 }) }, []string{"/a/b (inode 3): lies in directory 2 but its parent is 1"}},
		"root's parent":         {func(w *world) { w.edit(1, func(n *Inode) { n.Parent = 2 }) }, []string{"/ (inode 1): the root's parent is 2"}},
		"two entries of a directory": {func(w *world) {
			w.entry(1, "b2", 3, dtDir)
			w.edit(1, func(n *Inode) { n.Entries++; n.Nlink++ })
		}, []string{"/b2 (inode 3): lies in directory 1 but its parent is 2", "(inode 3): 2 entries name the directory, want 1"}},
		"no entry of a directory": {func(w *world) {
			w.del(DirentKey(2, "b"))
			w.edit(2, func(n *Inode) { n.Entries--; n.Nlink-- })
		}, []string{"inode 3: 0 entries name the directory, want 1"}},
		"cycle": {func(w *world) { // 3 holds 2, which holds 3
			w.del(DirentKey(1, "a"))
			w.entry(3, "a", 2, dtDir)
			w.edit(1, func(n *Inode) { n.Entries--; n.Nlink-- })
			w.edit(3, func(n *Inode) { n.Entries++; n.Nlink++ })
			w.edit(2, func(n *Inode) { n.Parent = 3 })
		}, []string{"inode 2: is its own ancestor"}},
		"entry of the root": {func(w *world) {
			w.entry(2, "top", 1, dtDir)
			w.edit(2, func(n *Inode) { n.Entries++ })
		}, []string{"/a/top (inode 1): entry \"top\" of directory 2 names the root"}},
		"orphan with entries": {func(w *world) {
			w.edit(3, func(n *Inode) { n.Nlink = 0 })
			w.del(DirentKey(2, "b"))
			w.edit(2, func(n *Inode) { n.Entries--; n.Nlink-- })
			w.super(func(s *Super) { s.Inodes-- })
		}, []string{"inode 3: has no links but 1 entries"}},
		"orphan directory with a name": {func(w *world) {
			w.inode(Inode{Ino: 12, Mode: dir, Parent: 1})
			w.entry(1, "ghost", 12, dtDir)
			w.edit(1, func(n *Inode) { n.Entries++; n.Nlink++ })
		}, []string{"/ghost (inode 12): link count 0, but 1 entries name the directory"}},
		"no root": {func(w *world) {
			*w = world{keys: map[string][]byte{}}
			w.put(SuperKey(), AppendSuper(nil, Super{NextIno: 2}))
		}, []string{"inode 1: there is no root directory"}},
		"root is a file": {func(w *world) {
			*w = world{keys: map[string][]byte{}}
			w.inode(Inode{Ino: 1, Mode: reg})
			w.put(SuperKey(), AppendSuper(nil, Super{NextIno: 2}))
		}, []string{"/ (inode 1): the root is not a directory"}},
		"no file type":           {func(w *world) { w.edit(8, func(n *Inode) { n.Mode = 0o644 }); w.entry(1, "tty", 8, 0) }, []string{"/tty (inode 8): mode 644 has no file type"}},
		"inode 0":                {func(w *world) { w.inode(Inode{Ino: 0, Mode: reg}) }, []string{"there is an inode 0"}},
		"damaged inode":          {func(w *world) { w.put(InodeKey(4), []byte{1, 3, 0xff}) }, []string{"(inode 4): inode 4: malformed metadata record"}},
		"damaged directory":      {func(w *world) { w.put(InodeKey(3), []byte{7}) }, []string{"/a/b (inode 3): inode 3: malformed metadata record: version 7", "/a (inode 2): link count 3, but 0 subdirectories"}},
		"malformed inode key":    {func(w *world) { w.put([]byte("i12345678x"), []byte{}) }, []string{"inode key 69313233343536373878: malformed"}},
		"attribute count":        {func(w *world) { w.edit(6, func(n *Inode) { n.Xattrs = 2 }) }, []string{"/small (inode 6): counts 1 attributes too many"}},
		"missing attribute":      {func(w *world) { w.put(XattrKey(9, "user.z"), []byte("1")) }, []string{"/hole (inode 9): counts 1 attributes too few"}},
		"attribute of no inode":  {func(w *world) { w.put(XattrKey(99, "p"), []byte("1")); w.put(XattrKey(99, "q"), []byte("1")) }, []string{"inode 99: attribute \"p\" belongs to no inode"}},
		"attribute without name": {func(w *world) { w.put(XattrKey(6, ""), []byte("1")); w.edit(6, func(n *Inode) { n.Xattrs++ }) }, []string{"/small (inode 6): attribute name \"\""}},
		"malformed attribute":    {func(w *world) { w.put([]byte("a1"), []byte("1")) }, []string{"key 6131: too short"}},
		"extent of no inode":     {func(w *world) { w.extent(99, 0, 5, 0); w.extent(99, 5, 5, 0) }, []string{"inode 99: an extent at 0 belongs to no inode"}},
		"extents of a small file": {func(w *world) { w.extent(6, 0, 1, 0); w.extent(6, 1, 1, 0) },
			[]string{"/small (inode 6): has extents but content of kind 1"}},
		"extents of a directory": {func(w *world) {
			w.edit(3, func(n *Inode) { n.Content = ContentExtents })
			w.extent(3, 0, 1, 0)
		}, []string{"/a/b (inode 3): has content (kind 3", "/a/b (inode 3): has extents"}},
		"overlapping extents": {func(w *world) { w.extent(4, 500, 20, 0); w.edit(4, moreAlloc(20)); w.super(moreBytes(20)) },
			[]string{"/a/b/deep (inode 4): extent at 500 overlaps the one before, which ends at 1000"}},
		"extent past the size": {func(w *world) { w.edit(4, func(n *Inode) { n.Size = 9999 }) },
			[]string{"/a/b/deep (inode 4): extent at 7000 ends at 10000, past the size of 9999"}},
		"extent out of range": {func(w *world) { w.extent(4, math.MaxInt64-5, 20, 0) },
			[]string{"/a/b/deep (inode 4): extent at 9223372036854775802: offset out of range"}},
		"extent at a negative offset": {func(w *world) { w.extent(4, -5, 20, 0) }, []string{"offset out of range"}},
		"damaged extent":              {func(w *world) { w.put(ExtentKey(4, 3000), []byte{1}) }, []string{"/a/b/deep (inode 4): extent at 3000: malformed"}},
		"malformed extent key":        {func(w *world) { w.put([]byte("e12345678"), []byte{1}) }, []string{"extent key 653132333435363738: malformed"}},
		"alloc of extents":            {func(w *world) { w.edit(4, moreAlloc(1)); w.super(moreBytes(1)) }, []string{"/a/b/deep (inode 4): alloc 6001, but the extents have 6000"}},
		"alloc of one":                {func(w *world) { w.edit(5, moreAlloc(1)); w.super(moreBytes(1)) }, []string{"(inode 5): alloc 778, want 777"}},
		"alloc of inline":             {func(w *world) { w.edit(6, moreAlloc(1)); w.super(moreBytes(1)) }, []string{"/small (inode 6): alloc 6, want 5"}},
		"alloc of a hole":             {func(w *world) { w.edit(9, moreAlloc(1)); w.super(moreBytes(1)) }, []string{"/hole (inode 9): alloc 1, want 0"}},
		"size of inline":              {func(w *world) { w.edit(6, func(n *Inode) { n.Size = 6 }) }, []string{"/small (inode 6): size 6 but 5 bytes inline"}},
		"size of a symlink":           {func(w *world) { w.edit(7, func(n *Inode) { n.Size = 6 }) }, []string{"/link (inode 7): size 6 but 5 bytes inline"}},
		"symlink without target":      {func(w *world) { w.edit(7, func(n *Inode) { n.Inline = nil }) }, []string{"/link (inode 7): symlink with a target of 0 bytes"}},
		"content of a device":         {func(w *world) { w.edit(8, func(n *Inode) { n.Size = 1 }) }, []string{"/tty (inode 8): has content"}},
		"size of a directory":         {func(w *world) { w.edit(3, func(n *Inode) { n.Size = 4096 }) }, []string{"/a/b (inode 3): has content"}},
		"journal content":             {func(w *world) { w.edit(10, func(n *Inode) { n.Content = ContentJournal }) }, []string{"/empty (inode 10): content is on one host only"}},
		"staged content":              {func(w *world) { w.edit(10, func(n *Inode) { n.Content = ContentStaged; n.Staging = 1 }) }, []string{"/empty (inode 10): content is on one host only"}},
		"a clean copy":                {func(w *world) { w.edit(5, func(n *Inode) { n.Staging = 3 }) }, []string{"(inode 5): content is on one host only"}},
		"live content":                {func(w *world) { w.edit(10, func(n *Inode) { n.Live = true }) }, []string{"/empty (inode 10): content is on one host only"}},
		"stray keys": {func(w *world) {
			for _, k := range []string{"A", "b", "j12", "sx", "z"} {
				w.put([]byte(k), []byte("?"))
			}
		}, []string{"key 41 is of no kind", "key 62", "key 6a3132", "key 7a", "key 7378"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := sound()
			c.damage(w)
			r, err := Check(context.Background(), w.tree(t), CheckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			expectProblems(t, r, c.want)
		})
	}
}

func expectProblems(t *testing.T, r *Report, want []string) {
	t.Helper()
	ok := len(r.Problems) == len(want) && !r.OK() == (len(want) > 0)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(r.Problems[i].String(), want[i])
	}
	if !ok {
		for _, p := range r.Problems {
			t.Logf("found: %v", p)
		}
		t.Errorf("want %q", want)
	}
}

func moreAlloc(n int64) func(*Inode)  { return func(i *Inode) { i.Alloc += n } }
func moreBytes(n uint64) func(*Super) { return func(s *Super) { s.Bytes += n } }

// misfileEntry keeps an entry under another hash.
func misfileEntry(w *world) {
	key := DirentKey(1, "small")
	value := w.keys[string(key)]
	w.del(key)
	key[10] ^= 1
	w.put(key, value)
}

func badName(name string) func(w *world) {
	return func(w *world) {
		w.del(DirentKey(1, "small"))
		w.entry(1, name, 6, dtReg)
	}
}

// TestCheckOfLocalContent: what only the live overlay may have.
func TestCheckOfLocalContent(t *testing.T) {
	w := sound()
	w.edit(4, func(n *Inode) { n.Content, n.Staging, n.Live, n.Size = ContentStaged, 70, true, 1 })
	w.edit(9, func(n *Inode) { n.Content, n.Staging = ContentStaged, 71 })
	w.edit(10, func(n *Inode) { n.Content = ContentJournal })
	lost := errors.New("lost")
	var asked []string
	o := CheckOptions{
		Local: true,
		StagingExists: func(number uint64, ino Ino) error {
			asked = append(asked, fmt.Sprintf("staging %d of %d", number, ino))
			return nil
		},
		ContentExists: func(ino Ino) error {
			asked = append(asked, fmt.Sprintf("content of %d", ino))
			return nil
		},
	}
	r, err := Check(context.Background(), w.tree(t), o)
	if err != nil {
		t.Fatal(err)
	}
	expectProblems(t, r, nil)
	if want := []string{"staging 70 of 4", "staging 71 of 9", "content of 10"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if r.Counts.Local != 3 {
		t.Errorf("%d local inodes", r.Counts.Local)
	}

	o.StagingExists = func(number uint64, _ Ino) error {
		if number == 71 {
			return lost
		}
		return nil
	}
	o.ContentExists = func(Ino) error { return lost }
	if r, err = Check(context.Background(), w.tree(t), o); err != nil {
		t.Fatal(err)
	}
	expectProblems(t, r, []string{"/hole (inode 9): staging file 71: lost", "/empty (inode 10): content in the journal: lost"})

	w.edit(5, func(n *Inode) { n.Staging = 75 }) // a clean copy
	w.edit(6, func(n *Inode) { n.Staging = 70 })
	w.edit(9, func(n *Inode) { n.Staging = 0 })
	w.edit(10, func(n *Inode) { n.Live = true })
	if r, err = Check(context.Background(), w.tree(t), CheckOptions{Local: true}); err != nil {
		t.Fatal(err)
	}
	expectProblems(t, r, []string{"/hole (inode 9): content is in a staging file without a number",
		"/empty (inode 10): is live but has no staging file", "/small (inode 6): staging file 70 is also inode 4's"})
}

func TestCheckBoundsItsReport(t *testing.T) {
	w := sound()
	for i := range 50 {
		w.extent(Ino(100+i), 0, 5, 0)
	}
	r, err := Check(context.Background(), w.tree(t), CheckOptions{MaxProblems: 7})
	if err != nil || len(r.Problems) != 7 || r.Unlisted != 43 || r.OK() {
		t.Errorf("%d problems, %d unlisted, %v", len(r.Problems), r.Unlisted, err)
	}
}

// TestCheckOfLoopWithoutLinks: directories without links that name each other must not hold up the search for paths.
func TestCheckOfLoopWithoutLinks(t *testing.T) {
	w := sound()
	for i, other := range map[Ino]Ino{20: 21, 21: 20} {
		w.inode(Inode{Ino: i, Mode: dir, Parent: other, Entries: 1})
		w.entry(i, "x", other, dtDir)
	}
	w.super(func(s *Super) { s.NextIno = 22 })
	r, err := Check(context.Background(), w.tree(t), CheckOptions{})
	if err != nil || len(r.Problems) != 2 {
		t.Errorf("%v %v", r.Problems, err)
	}
}

func TestCheckReturnsReadErrors(t *testing.T) {
	tr := sound().tree(t)
	boom := errors.New("boom")
	tr.r.(*memPages).fail = boom
	if r, err := Check(context.Background(), tr, CheckOptions{}); !errors.Is(err, boom) || r == nil {
		t.Errorf("%v %v", r, err)
	}
}

func TestBlocks(t *testing.T) {
	var b blocks[uint64]
	for i := range 3*blockLen + 5 {
		if got := b.add(uint64(i) * 3); got != i {
			t.Fatalf("index %d, want %d", got, i)
		}
	}
	for i := range b.n {
		if *b.at(i) != uint64(i)*3 {
			t.Fatalf("entry %d is %d", i, *b.at(i))
		}
	}
}

// TestCheckMemory: what Check keeps of a tree is about 40 bytes per inode.
func TestCheckMemory(t *testing.T) {
	const files = 64000
	tr := checkTree(t, files)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := &checker{v: tr, o: CheckOptions{MaxProblems: 10}, report: &Report{}}
	if err := c.run(context.Background()); err != nil || !c.report.OK() {
		t.Fatal(c.report.Problems, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / files
	t.Logf("%.1f bytes per inode", per)
	if c.marks.n != files+files/100+1 || per > 44 {
		t.Errorf("%d marks, %.1f bytes per inode", c.marks.n, per)
	}
	runtime.KeepAlive(tr)
}

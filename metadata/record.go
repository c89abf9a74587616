package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"syscall"

	"wsfs/blobs"
)

// ErrRecord: a record cannot be decoded; whatever holds it is damaged or of a newer format.
var ErrRecord = errors.New("malformed metadata record")

// recordVersion is the first byte of every Inode record.
const recordVersion = 1

// ContentKind says where the bytes of a regular file (or the target of a symlink) are.
type ContentKind uint8

const (
	// ContentNone: nothing is stored; the file is Size bytes of hole. Also every non-regular inode but symlinks.
	ContentNone ContentKind = iota
	// ContentInline: the whole content (or symlink target) is in the record.
	ContentInline
	// ContentOne: one chunk at offset 0 holds the whole content.
	ContentOne
	// ContentExtents: the extent keys of the inode hold it; gaps are holes.
	ContentExtents
	// ContentJournal: the whole content is under ContentKey, not yet chunked. Local only.
	ContentJournal
	// ContentStaged: the whole content is the staging file named by Staging. Local only.
	ContentStaged
)

// Local tells whether content of this kind exists on this host only and waits for a commit.
func (k ContentKind) Local() bool { return k == ContentJournal || k == ContentStaged }

// Inode is one inode record. Times are nanoseconds since 1970 UTC.
type Inode struct {
	Ino     Ino // not encoded: it is the key
	Mode    uint32
	UID     uint32
	GID     uint32
	Nlink   uint32 // directories: 2 + subdirectories; 0: an orphan, kept only while something holds it open
	Rdev    uint32
	Size    int64  // bytes; symlinks: length of the target; directories: 0
	Alloc   int64  // bytes that are not hole, for st_blocks
	Entries uint64 // directories: number of entries
	Parent  Ino    // directories: the directory holding it (root: itself)
	Xattrs  uint32 // number of extended attributes
	Atime   int64
	Mtime   int64
	Ctime   int64
	Btime   int64
	Version uint64 // journal sequence number of the last content change, for settling a commit
	Content ContentKind
	Inline  []byte    // ContentInline
	Ref     blobs.Ref // ContentOne
	// Staging is the number of the staging file holding the whole content, 0 if there is none. With ContentStaged
	// it is the content; with any other kind it is a clean local copy. Local only.
	Staging uint64
	// Live is set while a staging file may be written behind our back (an open passthrough handle): after a
	// crash size and times are taken from the file. Local only.
	Live bool
}

// IsDir, IsRegular and IsSymlink tell the file type.
func (n *Inode) IsDir() bool     { return n.Mode&syscall.S_IFMT == syscall.S_IFDIR }
func (n *Inode) IsRegular() bool { return n.Mode&syscall.S_IFMT == syscall.S_IFREG }
func (n *Inode) IsSymlink() bool { return n.Mode&syscall.S_IFMT == syscall.S_IFLNK }

// AppendInode appends the encoding of n:
// version(1) content kind(1, bit 7: Live, bit 6: Staging follows, bit 5: times in ms) then uvarints mode uid gid nlink rdev size entries parent
// xattrs version, varints alloc-size, mtime, atime-mtime, ctime-mtime, btime-mtime, then what the content kind needs, then uvarint staging.
func AppendInode(b []byte, n *Inode) []byte {
	kind := byte(n.Content)
	if n.Live {
		kind |= 0x80
	}
	if n.Staging != 0 {
		kind |= 0x40
	}
	unit := int64(1)
	if n.Mtime%1e6 == 0 && n.Atime%1e6 == 0 && n.Ctime%1e6 == 0 && n.Btime%1e6 == 0 {
		kind |= 0x20
		unit = 1e6
	}
	b = append(b, recordVersion, kind)
	for _, v := range [...]uint64{uint64(n.Mode), uint64(n.UID), uint64(n.GID), uint64(n.Nlink), uint64(n.Rdev),
		uint64(n.Size), n.Entries, uint64(n.Parent), uint64(n.Xattrs), n.Version} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(b, n.Alloc-n.Size)
	b = binary.AppendVarint(b, n.Mtime/unit)
	for _, t := range [...]int64{n.Atime, n.Ctime, n.Btime} {
		b = binary.AppendVarint(b, (t-n.Mtime)/unit)
	}
	switch n.Content {
	case ContentInline:
		b = binary.AppendUvarint(b, uint64(len(n.Inline)))
		b = append(b, n.Inline...)
	case ContentOne:
		b = append(b, n.Ref.ID[:]...)
		b = append(b, n.Ref.Pack[:]...)
		b = binary.AppendUvarint(b, uint64(n.Ref.Offset))
		b = binary.AppendUvarint(b, uint64(n.Ref.Length)) // Raw is Size
	}
	if n.Staging != 0 {
		b = binary.AppendUvarint(b, n.Staging)
	}
	return b
}

// DecodeInode reads an inode record; every number must fit its field. The result does not alias b.
func DecodeInode(ino Ino, b []byte) (*Inode, error) {
	d := decoder{b: b}
	n := &Inode{Ino: ino}
	if v := d.byte(); v != recordVersion && d.err == nil {
		return nil, fmt.Errorf("inode %d: %w: version %d, this program knows %d", ino, ErrRecord, v, recordVersion)
	}
	kind := d.byte()
	n.Live, n.Content = kind&0x80 != 0, ContentKind(kind&0x1f)
	n.Mode, n.UID, n.GID = d.uint32(), d.uint32(), d.uint32()
	n.Nlink, n.Rdev = d.uint32(), d.uint32()
	n.Size = d.size()
	n.Entries, n.Parent, n.Xattrs, n.Version = d.uvarint(), Ino(d.uvarint()), d.uint32(), d.uvarint()
	if n.Alloc = n.Size + d.varint(); n.Alloc < 0 && d.err == nil {
		d.fail("negative allocation")
	}
	unit := int64(1)
	if kind&0x20 != 0 {
		unit = 1e6
	}
	n.Mtime = d.varint() * unit
	n.Atime, n.Ctime, n.Btime = n.Mtime+d.varint()*unit, n.Mtime+d.varint()*unit, n.Mtime+d.varint()*unit
	switch n.Content {
	case ContentNone, ContentExtents, ContentJournal, ContentStaged:
	case ContentInline:
		n.Inline = append([]byte(nil), d.bytes(int(d.size()))...)
	case ContentOne:
		copy(n.Ref.ID[:], d.bytes(len(n.Ref.ID)))
		copy(n.Ref.Pack[:], d.bytes(len(n.Ref.Pack)))
		n.Ref.Offset, n.Ref.Length, n.Ref.Raw = d.uint32(), d.uint32(), uint32(n.Size)
		if n.Size > math.MaxUint32 && d.err == nil {
			d.fail("one chunk for more than 4 GiB")
		}
	default:
		return nil, fmt.Errorf("inode %d: %w: content kind %d", ino, ErrRecord, n.Content)
	}
	if kind&0x40 != 0 {
		n.Staging = d.uvarint()
	}
	if err := d.finish(); err != nil {
		return nil, fmt.Errorf("inode %d: %w", ino, err)
	}
	return n, nil
}

// Dirent is the value of a directory entry.
type Dirent struct {
	Ino  Ino
	Type uint8 // file type as in dirent(5): DT_REG, DT_DIR, ...
}

// AppendDirent appends the encoding of e: ino(8, big-endian) type(1).
func AppendDirent(b []byte, e Dirent) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(e.Ino)), e.Type)
}

// DecodeDirent reads what AppendDirent wrote.
func DecodeDirent(b []byte) (Dirent, error) {
	if len(b) != 9 {
		return Dirent{}, fmt.Errorf("dirent: %w: %d bytes, want 9", ErrRecord, len(b))
	}
	return Dirent{Ino: Ino(binary.BigEndian.Uint64(b)), Type: b[8]}, nil
}

// Extent maps Len bytes of a file from Off to the content of a chunk from Skip.
type Extent struct {
	Off  int64 // not encoded: it is in the key
	Len  int64 // > 0
	Skip uint32
	Ref  blobs.Ref
}

// AppendExtent appends the encoding of e: uvarint length, uvarint skip, chunk reference.
func AppendExtent(b []byte, e Extent) []byte {
	b = binary.AppendUvarint(b, uint64(e.Len))
	b = binary.AppendUvarint(b, uint64(e.Skip))
	return blobs.AppendRef(b, e.Ref)
}

// DecodeExtent reads what AppendExtent wrote.
func DecodeExtent(off int64, b []byte) (Extent, error) {
	d := decoder{b: b}
	e := Extent{Off: off, Len: d.size(), Skip: d.uint32(), Ref: d.ref()}
	if err := d.finish(); err != nil {
		return e, fmt.Errorf("extent at %d: %w", off, err)
	}
	if e.Len <= 0 || e.Len > int64(e.Ref.Raw)-int64(e.Skip) { // the sum could overflow
		return e, fmt.Errorf("extent at %d: %w: %d bytes from %d of a chunk of %d", off, ErrRecord, e.Len, e.Skip, e.Ref.Raw)
	}
	return e, nil
}

// Super is the superblock record: what must survive with the tree besides inodes and entries.
type Super struct {
	NextIno Ino
	Inodes  uint64 // inodes with at least one link
	Bytes   uint64 // sum of Alloc over them
}

// AppendSuper appends the encoding of s: version(1) then uvarints next ino, inodes, bytes.
func AppendSuper(b []byte, s Super) []byte {
	b = append(b, recordVersion)
	b = binary.AppendUvarint(b, uint64(s.NextIno))
	b = binary.AppendUvarint(b, s.Inodes)
	return binary.AppendUvarint(b, s.Bytes)
}

// DecodeSuper reads what AppendSuper wrote.
func DecodeSuper(b []byte) (Super, error) {
	d := decoder{b: b}
	if v := d.byte(); v != recordVersion && d.err == nil {
		return Super{}, fmt.Errorf("superblock: %w: version %d, this program knows %d", ErrRecord, v, recordVersion)
	}
	s := Super{NextIno: Ino(d.uvarint()), Inodes: d.uvarint(), Bytes: d.uvarint()}
	if err := d.finish(); err != nil {
		return s, fmt.Errorf("superblock: %w", err)
	}
	return s, nil
}

// decoder reads a record front to back; the first fault sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) { d.b = nil; d.err = fmt.Errorf("%w: %s", ErrRecord, what) }

func (d *decoder) byte() byte {
	if b := d.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.b) {
		d.fail("truncated")
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// uint32 reads a uvarint that must fit 32 bits.
func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail("number too large")
		return 0
	}
	return uint32(v)
}

// size reads a uvarint that must fit an int64.
func (d *decoder) size() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.fail("number too large")
		return 0
	}
	return int64(v)
}

func (d *decoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) ref() blobs.Ref {
	r, rest, err := blobs.DecodeRef(d.b)
	if d.err == nil && err != nil {
		d.fail(err.Error())
	}
	d.b = rest
	return r
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail(fmt.Sprintf("%d bytes too many", len(d.b)))
	}
	return d.err
}

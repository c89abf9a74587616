package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"syscall"
	"testing"

	"wsfs/blobs"
)

var someRef = blobs.Ref{ID: blobs.IDOf([]byte("x")), Raw: 500,
	Locator: blobs.Locator{Pack: blobs.PackID{1, 2, 3}, Offset: 7, Length: 400}}

// someInodes has every kind of content, and the ends of every range.
var someInodes = []Inode{
	{Ino: 1, Mode: syscall.S_IFDIR | 0o755, Nlink: 2, Parent: 1},
	{Ino: 5, Mode: math.MaxUint32, UID: math.MaxUint32, GID: math.MaxUint32, Nlink: math.MaxUint32,
		Rdev: math.MaxUint32, Size: math.MaxInt64, Alloc: math.MaxInt64, Entries: math.MaxUint64, Parent: math.MaxUint64,
		Xattrs: math.MaxUint32, Version: math.MaxUint64},
	{Ino: 2, Atime: math.MinInt64, Mtime: math.MaxInt64, Ctime: math.MinInt64, Btime: math.MaxInt64},
	{Ino: 3, Atime: 1700000000000000001, Mtime: 1700000000000000002, Ctime: 1700000000000000003, Btime: -1},
	{Ino: 4, Size: 3, Content: ContentInline, Inline: []byte("abc")},
	{Ino: 6, Size: 500, Content: ContentOne, Ref: someRef},
	{Ino: 7, Size: 5000, Alloc: 500, Content: ContentExtents},
	{Ino: 8, Size: 1, Content: ContentJournal},
	{Ino: 9, Size: 1, Content: ContentStaged, Staging: math.MaxUint64, Live: true},
}

func TestInodeRecord(t *testing.T) {
	for _, n := range someInodes {
		b := AppendInode([]byte("prefix"), &n)[6:]
		got, err := DecodeInode(n.Ino, b)
		if err != nil || !reflect.DeepEqual(*got, n) {
			t.Errorf("got %+v, want %+v: %v", got, n, err)
		}
		for i := range b {
			if got, err := DecodeInode(n.Ino, b[:i]); !errors.Is(err, ErrRecord) || got != nil {
				t.Errorf("inode %d cut to %d of %d bytes: %v %v", n.Ino, i, len(b), got, err)
			}
		}
		if _, err := DecodeInode(n.Ino, append(b, 0)); !errors.Is(err, ErrRecord) {
			t.Errorf("inode %d with a byte too many: %v", n.Ino, err)
		}
	}
}

// TestInodeRecordBytes pins format 1: stores hold such records.
func TestInodeRecordBytes(t *testing.T) {
	n := Inode{Ino: 4, Mode: 0o100644, UID: 1000, GID: 100, Nlink: 1, Size: 3, Alloc: 3, Xattrs: 2, Version: 300,
		Mtime: 1000, Atime: 1001, Ctime: 999, Btime: 1000, Content: ContentInline, Inline: []byte("abc")}
	want := []byte{1, 1, 0xa4, 0x83, 2, 0xe8, 7, 100, 1, 0, 3, 0, 0, 2, 0xac, 2, 0, 0xd0, 15, 2, 1, 0, 3, 'a', 'b', 'c'}
	if got := AppendInode(nil, &n); !bytes.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestInodeDoesNotAlias(t *testing.T) {
	b := AppendInode(nil, &someInodes[4])
	n, err := DecodeInode(4, b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if string(n.Inline) != "abc" {
		t.Error("the inode aliases the record")
	}
}

// TestInodeRefusesNumbersOutOfRange: a number that does not fit its field must not be cut to fit.
func TestInodeRefusesNumbersOutOfRange(t *testing.T) {
	limits := [...]uint64{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32,
		math.MaxInt64, math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MaxUint64}
	for field, limit := range limits {
		for _, v := range []uint64{limit, limit + 1} {
			if v == 0 {
				continue // every number fits
			}
			b := []byte{recordVersion, byte(ContentNone)}
			for i := range limits {
				x := uint64(0)
				if i == field {
					x = v
				}
				b = binary.AppendUvarint(b, x)
			}
			b = append(b, 0, 0, 0, 0, 0)
			if _, err := DecodeInode(1, b); (err != nil) != (v > limit) {
				t.Errorf("field %d = %d: %v", field, v, err)
			}
		}
	}
	for _, n := range []Inode{{Size: 5, Alloc: -1}, {Content: ContentOne, Size: math.MaxUint32 + 1}} {
		if _, err := DecodeInode(1, AppendInode(nil, &n)); !errors.Is(err, ErrRecord) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	for _, kind := range []byte{6, 0x3f, 0xff} {
		if _, err := DecodeInode(1, append([]byte{recordVersion, kind}, make([]byte, 15)...)); !errors.Is(err, ErrRecord) {
			t.Errorf("content kind %d: %v", kind, err)
		}
	}
	if _, err := DecodeInode(1, make([]byte, 17)); !errors.Is(err, ErrRecord) {
		t.Errorf("version 0: %v", err)
	}
}

func TestExtentRecord(t *testing.T) {
	e := Extent{Off: 4096, Len: 300, Skip: 200, Ref: someRef}
	b := AppendExtent(nil, e)
	if got, err := DecodeExtent(4096, b); err != nil || got != e {
		t.Errorf("got %+v: %v", got, err)
	}
	for _, bad := range []Extent{
		{Len: 0, Ref: someRef},
		{Len: 501, Ref: someRef},
		{Len: 301, Skip: 200, Ref: someRef},
		{Len: 1, Skip: 500, Ref: someRef},
		{Len: math.MaxInt64, Skip: 1, Ref: someRef}, // Skip + Len would overflow
		{Len: -1, Ref: someRef},
	} {
		if _, err := DecodeExtent(0, AppendExtent(nil, bad)); !errors.Is(err, ErrRecord) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for i := range b {
		if _, err := DecodeExtent(0, b[:i]); !errors.Is(err, ErrRecord) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
}

func TestDirentRecord(t *testing.T) {
	e := Dirent{Ino: math.MaxUint64 - 1, Type: syscall.DT_LNK}
	b := AppendDirent(nil, e)
	if got, err := DecodeDirent(b); err != nil || got != e {
		t.Errorf("got %+v: %v", got, err)
	}
	for _, bad := range [][]byte{nil, b[:8], append(b, 0)} {
		if _, err := DecodeDirent(bad); !errors.Is(err, ErrRecord) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

func TestSuperRecord(t *testing.T) {
	s := Super{NextIno: math.MaxUint64, Inodes: 77, Bytes: math.MaxUint64}
	b := AppendSuper(nil, s)
	if got, err := DecodeSuper(b); err != nil || got != s {
		t.Errorf("got %+v: %v", got, err)
	}
	for i := range b {
		if _, err := DecodeSuper(b[:i]); !errors.Is(err, ErrRecord) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := DecodeSuper(append([]byte{2}, b[1:]...)); !errors.Is(err, ErrRecord) {
		t.Errorf("version 2: %v", err)
	}
}

// The fuzzers demand that a decoder never panics, and that what it takes means the same after encoding it again.

func FuzzDecodeInode(f *testing.F) {
	for _, n := range someInodes {
		f.Add(AppendInode(nil, &n))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := DecodeInode(9, b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if n.Size < 0 || n.Alloc < 0 {
			t.Fatalf("negative size: %+v", n)
		}
		again, err := DecodeInode(9, AppendInode(nil, n))
		if err != nil || !reflect.DeepEqual(n, again) {
			t.Fatalf("%+v became %+v: %v", n, again, err)
		}
	})
}

func FuzzDecodeExtent(f *testing.F) {
	f.Add(int64(4096), AppendExtent(nil, Extent{Len: 300, Skip: 200, Ref: someRef}))
	f.Add(int64(0), AppendExtent(nil, Extent{Len: math.MaxInt64, Skip: 1, Ref: someRef}))
	f.Fuzz(func(t *testing.T, off int64, b []byte) {
		e, err := DecodeExtent(off, b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if e.Len < 1 || e.Len > math.MaxUint32 || uint64(e.Skip)+uint64(e.Len) > uint64(e.Ref.Raw) {
			t.Fatalf("extent outside its chunk: %+v", e)
		}
		if again, err := DecodeExtent(off, AppendExtent(nil, e)); err != nil || again != e {
			t.Fatalf("%+v became %+v: %v", e, again, err)
		}
	})
}

func FuzzDecodeSuper(f *testing.F) {
	f.Add(AppendSuper(nil, Super{NextIno: 12, Inodes: 3, Bytes: 1 << 40}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSuper(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if again, err := DecodeSuper(AppendSuper(nil, s)); err != nil || again != s {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}

func FuzzDecodeDirent(f *testing.F) {
	f.Add(AppendDirent(nil, Dirent{Ino: 7, Type: syscall.DT_REG}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeDirent(b)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(AppendDirent(nil, e), b) {
			t.Fatalf("%x became %x", b, AppendDirent(nil, e))
		}
	})
}

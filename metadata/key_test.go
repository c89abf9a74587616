package metadata

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestKeysSort(t *testing.T) {
	rng := newRand(t)
	for range 2000 {
		a, b := Ino(rng.Uint64()>>rng.IntN(64)), Ino(rng.Uint64()>>rng.IntN(64))
		if (a < b) != (bytes.Compare(InodeKey(a), InodeKey(b)) < 0) {
			t.Fatalf("inodes %d and %d", a, b)
		}
		x, y := int64(rng.Uint64()>>1), int64(rng.Uint64()>>1)
		if (x < y) != (bytes.Compare(ExtentKey(a, x), ExtentKey(a, y)) < 0) {
			t.Fatalf("extents at %d and %d", x, y)
		}
		if a < b && bytes.Compare(ExtentKey(a, x), ExtentKey(b, y)) >= 0 {
			t.Fatalf("extents of inodes %d and %d", a, b)
		}
		p, q := fmt.Sprint(rng.Uint32()), fmt.Sprint(rng.Uint32())
		if hp, hq := NameHash(p), NameHash(q); hp != hq && (hp < hq) != (bytes.Compare(DirentKey(a, p), DirentKey(a, q)) < 0) {
			t.Fatalf("names %s and %s", p, q)
		}
	}
}

func TestKeysParse(t *testing.T) {
	for _, name := range []string{"a", "ü", strings.Repeat("n", 255)} {
		key := DirentKey(77, name)
		parent, hash, got, err := ParseDirentKey(key)
		if err != nil || parent != 77 || got != name || hash != NameHash(name) {
			t.Errorf("%q: %d %x %q %v", name, parent, hash, got, err)
		}
		if !bytes.HasPrefix(key, DirentPrefix(77)) || !bytes.HasPrefix(key, DirentFrom(77, hash)) {
			t.Errorf("%q: the key lacks its prefix", name)
		}
		if len(key) > MaxTreeKey {
			t.Errorf("%q: %d bytes of key do not fit a tree", name, len(key))
		}
	}
	if ino, off, err := ParseExtentKey(ExtentKey(5, 1<<40)); err != nil || ino != 5 || off != 1<<40 {
		t.Errorf("extent key: %d %d %v", ino, off, err)
	}
	for _, key := range [][]byte{InodeKey(9), ContentKey(9), XattrKey(9, "user.a"), DirentKey(9, "x"), ExtentPrefix(9)} {
		if ino, err := ParseInoKey(key); err != nil || ino != 9 {
			t.Errorf("key %x: %d %v", key, ino, err)
		}
	}
	for _, key := range [][]byte{nil, {KeyDirent}, DirentFrom(1, 5), InodeKey(3)} {
		if _, _, _, err := ParseDirentKey(key); err == nil {
			t.Errorf("dirent key %x: no error", key)
		}
		if _, _, err := ParseExtentKey(key); err == nil {
			t.Errorf("extent key %x: no error", key)
		}
	}
	if _, err := ParseInoKey([]byte("i1234567")); err == nil {
		t.Error("a key too short for an inode: no error")
	}
}

// TestKeyBytes pins format 1.
func TestKeyBytes(t *testing.T) {
	for want, key := range map[string][]byte{
		"73":                                 SuperKey(),
		"690000000000000102":                 InodeKey(0x102),
		"610000000000000001752e61":           XattrKey(1, "u.a"),
		"6500000000000000010000000000100000": ExtentKey(1, 1<<20),
	} {
		if fmt.Sprintf("%x", key) != want {
			t.Errorf("%x, want %s", key, want)
		}
	}
	// The first half of SHA-256("abc") is ba7816bf8f01cfea; shifted right once.
	if got := NameHash("abc"); got != 0x5d3c0b5fc780e7f5 {
		t.Errorf("hash %x", got)
	}
	if got := fmt.Sprintf("%x", DirentKey(1, "abc")); got != "6400000000000000015d3c0b5fc780e7f5616263" {
		t.Errorf("dirent key %s", got)
	}
}

func TestPrefixEnd(t *testing.T) {
	for _, c := range []struct{ prefix, want string }{
		{"a", "b"}, {"a\xff", "b"}, {"a\xfe\xff\xff", "a\xff"}, {"\xff\xff", ""}, {"", ""},
	} {
		got := PrefixEnd([]byte(c.prefix))
		if string(got) != c.want || c.want == "" && got != nil {
			t.Errorf("PrefixEnd(%q) = %q", c.prefix, got)
		}
	}
	end := PrefixEnd(DirentPrefix(255))
	if bytes.Compare(end, DirentKey(255, "x")) <= 0 || bytes.Compare(end, DirentPrefix(256)) > 0 {
		t.Errorf("end of a directory: %x", end)
	}
}

func TestCommitted(t *testing.T) {
	for _, key := range [][]byte{SuperKey(), InodeKey(1), XattrKey(1, "a"), ExtentKey(1, 0), DirentKey(1, "a")} {
		if !Committed(key) {
			t.Errorf("%x is committed", key)
		}
	}
	for _, key := range [][]byte{nil, ContentKey(1), {KeyJournal, 1}, {KeyIndex, 1}, {KeyLocal, 1}} {
		if Committed(key) {
			t.Errorf("%x is local", key)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add(DirentKey(1, "name"))
	f.Add(ExtentKey(5, 77))
	f.Fuzz(func(t *testing.T, key []byte) {
		if parent, hash, name, err := ParseDirentKey(key); err == nil {
			if again := append(DirentFrom(parent, hash), name...); !bytes.Equal(again, key) {
				t.Errorf("%x became %x", key, again)
			}
		}
		if ino, off, err := ParseExtentKey(key); err == nil && !bytes.Equal(ExtentKey(ino, off), key) {
			t.Errorf("%x became %x", key, ExtentKey(ino, off))
		}
		if _, err := ParseInoKey(key); (err == nil) != (len(key) >= 9) {
			t.Errorf("%x: %v", key, err)
		}
	})
}

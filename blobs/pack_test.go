package blobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// buildPack seals a pack of the given chunks.
func buildPack(chunks ...[]byte) ([]byte, []PackEntry) {
	b := newPackBuilder(nil)
	for i, c := range chunks {
		b.add(ChunkKind(1+i%2), IDOf(c), Encode(nil, c), len(c))
	}
	return b.seal(), b.entries
}

func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body, want := buildPack(rapid.SliceOfN(contents(), 0, 6).Draw(t, "chunks")...)
		got, err := ParsePack(body)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if err := verifyPack(body, want); err != nil {
			t.Fatal(err)
		}
	})
}

// Any changed byte of a pack is noticed before it leaves: in the frame by ParsePack, in a chunk by its hash. The one
// exception are bits of a zstd frame that do not change what it decodes to (its window size).
func TestPackFlippedByte(t *testing.T) {
	r := newRand(t)
	chunks := [][]byte{noise(r, 100), prose(r, 500), nil, prose(r, 200)}
	body, entries := buildPack(chunks...)
	harmless := func(b []byte, i int) bool {
		for n, e := range entries {
			if at := int(e.Offset); at < i && i < at+int(e.Length) && b[at] == encodingZstd {
				got, err := Decode(nil, b[at:at+int(e.Length)], e.Raw)
				return err == nil && bytes.Equal(got, chunks[n])
			}
		}
		return false
	}
	frameStart := len(body) - packTail - len(entries)*packEntry
	for i := range body {
		b := bytes.Clone(body)
		b[i] ^= byte(1 + r.IntN(255))
		if err := verifyPack(b, entries); err == nil && !harmless(b, i) {
			t.Errorf("byte %d changed and nobody noticed", i)
		}
		if _, err := ParsePack(b); (i < packHeader || i >= frameStart) && !errors.Is(err, errPack) {
			t.Errorf("byte %d of the frame changed: %v", i, err)
		}
	}
	for n := range body {
		if _, err := ParsePack(body[:n]); !errors.Is(err, errPack) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := ParsePack(append(bytes.Clone(body), 0)); !errors.Is(err, errPack) {
		t.Errorf("one byte more: %v", err)
	}
}

// reseal makes a pack with a valid frame around entries that do not tile it.
func reseal(body []byte, entries []PackEntry) []byte {
	b := &packBuilder{body: bytes.Clone(body), entries: entries}
	return b.seal()
}

func TestPackEntriesMustTile(t *testing.T) {
	b := newPackBuilder(nil)
	for _, c := range []string{"one", "two!", "three"} {
		b.add(KindData, IDOf([]byte(c)), Encode(nil, []byte(c)), len(c))
	}
	plain := bytes.Clone(b.body)
	if _, err := ParsePack(reseal(plain, b.entries)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]PackEntry) []PackEntry{
		"gap":         func(e []PackEntry) []PackEntry { return slices.Delete(e, 1, 2) },
		"overlap":     func(e []PackEntry) []PackEntry { return slices.Insert(e, 1, e[0]) },
		"order":       func(e []PackEntry) []PackEntry { e[0], e[1] = e[1], e[0]; return e },
		"short":       func(e []PackEntry) []PackEntry { return e[:2] },
		"too long":    func(e []PackEntry) []PackEntry { e[2].Length++; return e },
		"no kind":     func(e []PackEntry) []PackEntry { e[1].Kind = 0; return e },
		"new kind":    func(e []PackEntry) []PackEntry { e[1].Kind = 3; return e },
		"huge":        func(e []PackEntry) []PackEntry { e[1].Raw = MaxChunk + 1; return e },
		"wraps":       func(e []PackEntry) []PackEntry { e[2].Length = 1<<32 - 1; return e },
		"empty entry": func(e []PackEntry) []PackEntry { e[2].Length = 0; return e },
	} {
		if _, err := ParsePack(reseal(plain, change(slices.Clone(b.entries)))); !errors.Is(err, errPack) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadFooter(t *testing.T) {
	r := newRand(t)
	store := newMapStore()
	var chunks [][]byte
	for range 500 {
		chunks = append(chunks, prose(r, 100+r.IntN(4000)))
	}
	all := pack(t, store, PackerOptions{}, chunks...)
	id := all[0].ref.Pack
	store.gets = 0
	got, err := ReadFooter(t.Context(), store, id)
	if err != nil {
		t.Fatal(err)
	}
	if gets, _ := store.counts(); gets != 2 {
		t.Errorf("%d requests, want 2", gets)
	}
	want, err := ParsePack(store.objects[id.Key()])
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("footer lists %d chunks, the pack %d, %v", len(got), len(want), err)
	}
	for i, e := range got {
		if e.Ref(id) != all[i].ref {
			t.Fatalf("entry %d is %v, want %v", i, e.Ref(id), all[i].ref)
		}
	}
	if _, err := ReadFooter(t.Context(), store, NewPackID()); !errors.Is(err, ErrNotExist) {
		t.Errorf("missing pack: %v", err)
	}
	for name, f := range map[string]func([]byte) []byte{
		"cut":   func(b []byte) []byte { return b[:len(b)-1] },
		"empty": func(b []byte) []byte { return nil },
		"far":   func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31); return b },
		"large": func(b []byte) []byte { binary.BigEndian.PutUint32(b[12:], 1<<31); return b },
	} {
		store.objects["packs/"+name] = nil
		other := NewPackID()
		store.objects[other.Key()] = f(bytes.Clone(store.objects[id.Key()]))
		if _, err := ReadFooter(context.Background(), store, other); !errors.Is(err, errPack) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// documented returns the bytes of the hex dump in a section of docs/formats.md.
func documented(t *testing.T, section string) []byte {
	t.Helper()
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/formats.md has no section %q", section)
	}
	_, rest, _ = strings.Cut(rest, "\n```hex\n")
	dump, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatalf("section %q has no hex example", section)
	}
	dump = regexp.MustCompile(`(?m)\s+;.*$`).ReplaceAllString(dump, "")
	b, err := hex.DecodeString(strings.Join(strings.Fields(dump), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDocumentedPack(t *testing.T) {
	doc := documented(t, "Packs")
	b := newPackBuilder(nil)
	b.add(KindData, IDOf([]byte("hello\n")), Encode(nil, []byte("hello\n")), 6)
	b.add(KindPage, IDOf([]byte("page")), Encode(nil, []byte("page")), 4)
	if got := b.seal(); !bytes.Equal(got, doc) {
		t.Errorf("built\n%x\ndocumented\n%x", got, doc)
	}
	if _, err := ParsePack(doc); err != nil {
		t.Error(err)
	}
}

func TestDocumentedIndex(t *testing.T) {
	doc := documented(t, "Chunk index")
	var p PackID
	for i := range p {
		p[i] = byte(i)
	}
	refs := []Ref{{ID: IDOf([]byte("hello\n")), Locator: Locator{Pack: p, Offset: packHeader, Length: 7}, Raw: 6}}
	if got := EncodeIndex(refs); !bytes.Equal(got, doc) {
		t.Errorf("built\n%x\ndocumented\n%x", got, doc)
	}
	if got, err := DecodeIndex(doc); err != nil || !slices.Equal(got, refs) {
		t.Errorf("decodes to %v, %v", got, err)
	}
}

func FuzzParsePack(f *testing.F) {
	r := newRand(f)
	empty, _ := buildPack()
	some, _ := buildPack([]byte("one"), prose(r, 300), nil)
	f.Add([]byte{})
	f.Add(empty)
	f.Add(some)
	f.Add(some[:len(some)-1])
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := ParsePack(body)
		if err != nil {
			if !errors.Is(err, errPack) {
				t.Fatalf("%v is no damaged pack", err)
			}
			return
		}
		end := len(body) - packTail - len(entries)*packEntry
		if again := reseal(body[:end], entries); !bytes.Equal(again, body) {
			t.Fatal("parses to something that seals differently")
		}
	})
}

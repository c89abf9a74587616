package blobs

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func refs() *rapid.Generator[Ref] {
	return rapid.Custom(func(t *rapid.T) Ref {
		raw := rapid.Uint32Range(0, MaxChunk).Draw(t, "raw")
		r := Ref{Raw: raw}
		copy(r.ID[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "id"))
		copy(r.Pack[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "pack"))
		r.Length = rapid.Uint32Range(1, raw+1).Draw(t, "length")
		r.Offset = rapid.Uint32Range(packHeader, maxPack-r.Length).Draw(t, "offset")
		return r
	})
}

func TestIndexRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(refs(), 0, 50).Draw(t, "refs")
		b := EncodeIndex(want)
		got, err := DecodeIndex(b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatal("references came back changed")
		}
		i := rapid.IntRange(0, len(b)-1).Draw(t, "byte")
		b[i] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
		if _, err := DecodeIndex(b); !errors.Is(err, errIndex) {
			t.Fatalf("with byte %d changed: %v", i, err)
		}
	})
}

func TestIndexCut(t *testing.T) {
	b := EncodeIndex([]Ref{{Raw: 5, Locator: Locator{Offset: packHeader, Length: 6}}})
	for n := range b {
		if _, err := DecodeIndex(b[:n]); !errors.Is(err, errIndex) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := DecodeIndex(append(b, 0)); !errors.Is(err, errIndex) {
		t.Fatalf("with a byte more: %v", err)
	}
	bad := EncodeIndex([]Ref{{Raw: 5, Locator: Locator{Offset: packHeader, Length: 7}}})
	if _, err := DecodeIndex(bad); !errors.Is(err, errIndex) {
		t.Fatalf("stored form longer than its content: %v", err)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodeIndex(nil))
	f.Add(EncodeIndex([]Ref{{Raw: 5, Locator: Locator{Offset: packHeader, Length: 6}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if refs, err := DecodeIndex(b); err == nil && !bytes.Equal(EncodeIndex(refs), b) {
			t.Fatal("decodes to something that encodes differently")
		}
	})
}

func FuzzDecodeRef(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendRef(nil, Ref{Raw: 5, Locator: Locator{Offset: packHeader, Length: 6}}))
	f.Add(make([]byte, RefSize+3))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := DecodeRef(b)
		if err != nil {
			if len(b) >= RefSize {
				t.Fatalf("%d bytes: %v", len(b), err)
			}
			return
		}
		if !bytes.Equal(append(AppendRef(nil, r), rest...), b) {
			t.Fatal("decodes to something that encodes differently")
		}
	})
}

package blobs

import (
	"bytes"
	"crypto/rand"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// contents draws chunks of many sizes and kinds.
func contents() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 200<<10)).Draw(t, "size")
		unit := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "unit")
		b := bytes.Repeat(unit, n/len(unit)+1)[:n]
		if rapid.Bool().Draw(t, "noisy") {
			rand.Read(b)
		}
		return b
	})
}

func TestEncodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := contents().Draw(t, "content")
		prefix := []byte("prefix")
		stored := Encode(bytes.Clone(prefix), want)
		if !bytes.HasPrefix(stored, prefix) {
			t.Fatal("Encode changed what was before")
		}
		stored = stored[len(prefix):]
		if len(stored) > len(want)+1 {
			t.Fatalf("%d bytes stored as %d", len(want), len(stored))
		}
		got, err := Decode(bytes.Clone(prefix), stored, uint32(len(want)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append(prefix, want...)) {
			t.Fatal("content came back changed")
		}
		for _, wrong := range []int{len(want) - 1, len(want) + 1} {
			if got, err := Decode(prefix, stored, uint32(wrong)); err == nil || len(got) != len(prefix) {
				t.Fatalf("decoded %d bytes as %d: %d bytes, %v", len(want), wrong, len(got), err)
			}
		}
	})
}

func TestEncodeChoice(t *testing.T) {
	r := newRand(t)
	for _, c := range []struct {
		name    string
		content []byte
		want    byte
	}{
		{"empty", nil, encodingRaw},
		{"tiny", bytes.Repeat([]byte("a"), minCompress-1), encodingRaw},
		{"small text", prose(r, 2000), encodingZstd},
		{"small noise", noise(r, 2000), encodingRaw},
		{"text", prose(r, 1<<20), encodingZstd},
		{"noise", noise(r, 1<<20), encodingRaw},
		{"zeros", make([]byte, MaxChunk), encodingZstd},
		{"saves too little", append(noise(r, 60<<10), make([]byte, 2<<10)...), encodingRaw},
	} {
		stored := Encode(nil, c.content)
		if stored[0] != c.want {
			t.Errorf("%s: encoding %d, want %d (%d of %d bytes)", c.name, stored[0], c.want, len(stored), len(c.content))
		}
		got, err := Decode(nil, stored, uint32(len(c.content)))
		if err != nil || !bytes.Equal(got, c.content) {
			t.Errorf("%s: came back as %d bytes, %v", c.name, len(got), err)
		}
	}
}

// A frame that expands beyond what the reference allows must cost no more memory than the reference allows.
func TestDecodeBomb(t *testing.T) {
	z, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	bomb := append([]byte{encodingZstd}, z.EncodeAll(make([]byte, 64<<20), nil)...)
	stream := new(bytes.Buffer) // without the content size in the frame header
	stream.WriteByte(encodingZstd)
	z.Reset(stream)
	for range 64 {
		z.Write(make([]byte, 1<<20))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"sized": bomb, "streamed": stream.Bytes()} {
		Decode(nil, b, 1000) // warm the decoder
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const runs = 10
		for range runs {
			if got, err := Decode(nil, b, 1000); err == nil || len(got) != 0 {
				t.Fatalf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / runs; n > 4<<20 {
			t.Errorf("%s: %d bytes allocated to refuse it", name, n)
		}
	}
	if _, err := Decode(nil, bomb, MaxChunk+1); err == nil {
		t.Error("content over the maximum was accepted")
	}
}

func FuzzDecode(f *testing.F) {
	r := newRand(f)
	f.Add([]byte{}, uint32(0))
	f.Add([]byte{encodingRaw}, uint32(0))
	f.Add(Encode(nil, prose(r, 3000)), uint32(3000))
	f.Add(Encode(nil, noise(r, 100)), uint32(100))
	f.Add([]byte{2, 1, 2}, uint32(2))
	f.Add([]byte{encodingZstd, 0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff}, uint32(5))
	f.Fuzz(func(t *testing.T, stored []byte, raw uint32) {
		got, err := Decode([]byte("ab"), stored, raw)
		if err != nil && string(got) != "ab" {
			t.Fatalf("failed and returned %d bytes", len(got))
		}
		if err == nil && (len(got) != int(raw)+2 || string(got[:2]) != "ab") {
			t.Fatalf("%d bytes for %d", len(got)-2, raw)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r := newRand(b)
	for _, c := range []struct {
		name    string
		content []byte
	}{
		{"text1MiB", prose(r, 1<<20)}, {"noise1MiB", noise(r, 1<<20)}, {"text4KiB", prose(r, 4<<10)}, {"noise4KiB", noise(r, 4<<10)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var dst []byte
			b.SetBytes(int64(len(c.content)))
			b.ReportAllocs()
			for b.Loop() {
				dst = Encode(dst[:0], c.content)
			}
			b.ReportMetric(float64(len(dst))/float64(len(c.content)), "ratio")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	content := prose(newRand(b), 1<<20)
	stored := Encode(nil, content)
	b.SetBytes(int64(len(content)))
	var dst []byte
	for b.Loop() {
		var err error
		if dst, err = Decode(dst[:0], stored, uint32(len(content))); err != nil {
			b.Fatal(err)
		}
	}
}

package blobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
)

// testPolynomial is a fixed one, so that cuts are the same in every run.
const testPolynomial = Polynomial(0x3DA3358B4DC173)

func split(t testing.TB, c *Chunker, b []byte) (sizes []int) {
	t.Helper()
	var joined []byte
	err := c.Split(bytes.NewReader(b), int64(len(b)), func(offset int64, content []byte) error {
		if offset != int64(len(joined)) {
			return fmt.Errorf("chunk at %d, want %d", offset, len(joined))
		}
		joined = append(joined, content...)
		sizes = append(sizes, len(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(joined, b) {
		t.Fatalf("chunks of %d bytes do not join to what was split", len(b))
	}
	return sizes
}

func TestSplitBounds(t *testing.T) {
	r := newRand(t)
	c := NewChunker(testPolynomial)
	for _, n := range []int{0, 1, 4096, MinChunk - 1, MinChunk, MinChunk + 1, 3 << 20, 20<<20 + 7} {
		sizes := split(t, c, noise(r, n))
		if n == 0 && len(sizes) != 0 {
			t.Errorf("nothing was split into %v", sizes)
		}
		if n > 0 && n <= MinChunk && len(sizes) != 1 {
			t.Errorf("%d bytes: chunks %v, want one", n, sizes)
		}
		for i, s := range sizes {
			if s > MaxChunk || s < MinChunk && i != len(sizes)-1 {
				t.Errorf("%d bytes: chunk %d has %d bytes", n, i, s)
			}
		}
	}
	// Nothing to cut at: only the maximum ends a chunk.
	for i, s := range split(t, c, make([]byte, MaxChunk+MinChunk)) {
		if s > MaxChunk {
			t.Errorf("zeros: chunk %d has %d bytes", i, s)
		}
	}
}

// An insertion near the start must leave most later chunks as they were: that is what cutting by content is for.
func TestSplitFollowsContent(t *testing.T) {
	r := newRand(t)
	c := NewChunker(testPolynomial)
	before := noise(r, 16<<20)
	after := append(noise(r, 1000), before...)
	ids := func(b []byte) map[ID]bool {
		m := make(map[ID]bool)
		if err := c.Split(bytes.NewReader(b), int64(len(b)), func(_ int64, content []byte) error {
			m[IDOf(content)] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	old, shared := ids(before), 0
	for id := range ids(after) {
		if old[id] {
			shared++
		}
	}
	if shared < len(old)/2 {
		t.Errorf("after an insertion %d of %d chunks are shared", shared, len(old))
	}
}

// The same content is cut the same way by a fresh Chunker, a reused one, and through a reader of tiny pieces.
func TestSplitIsDeterministic(t *testing.T) {
	b := noise(newRand(t), 6<<20)
	want := fmt.Sprint(split(t, NewChunker(testPolynomial), b))
	reused := NewChunker(testPolynomial)
	split(t, reused, b[:5<<20+1])
	split(t, reused, b[:100])
	if got := fmt.Sprint(split(t, reused, b)); got != want {
		t.Errorf("reused: %s, want %s", got, want)
	}
	var sizes []int
	err := reused.Split(iotest.HalfReader(bytes.NewReader(b)), int64(len(b)), func(_ int64, c []byte) error {
		sizes = append(sizes, len(c))
		return nil
	})
	if got := fmt.Sprint(sizes); err != nil || got != want {
		t.Errorf("in pieces: %s, %v, want %s", got, err, want)
	}
}

func TestSplitErrors(t *testing.T) {
	c := NewChunker(testPolynomial)
	nothing := func(int64, []byte) error { return nil }
	for _, size := range []int64{100, 4 << 20} {
		err := c.Split(bytes.NewReader(make([]byte, size-1)), size, nothing)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reader one byte short of %d: %v", size, err)
		}
		boom := errors.New("boom")
		if err := c.Split(iotest.ErrReader(boom), size, nothing); !errors.Is(err, boom) {
			t.Errorf("failing reader: %v", err)
		}
		err = c.Split(bytes.NewReader(make([]byte, size)), size, func(int64, []byte) error { return boom })
		if !errors.Is(err, boom) {
			t.Errorf("failing callback: %v", err)
		}
		long := bytes.NewReader(make([]byte, size+5))
		if err := c.Split(long, size, nothing); err != nil || long.Len() != 5 {
			t.Errorf("longer reader: %v, %d bytes left, want 5", err, long.Len())
		}
	}
	if err := c.Split(bytes.NewReader(nil), -1, nothing); err == nil {
		t.Error("negative size was accepted")
	}
	if err := NewChunker(7).Split(bytes.NewReader(nil), 0, nothing); err == nil {
		t.Error("polynomial of degree 2 was accepted")
	}
}

func TestPolynomial(t *testing.T) {
	p, err := NewPolynomial()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]Polynomial{"p": p})
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]Polynomial
	if err := json.Unmarshal(b, &back); err != nil || back["p"] != p {
		t.Errorf("%s came back as %s, %v", p, back["p"], err)
	}
	for _, bad := range []string{"", "x", "7", "0", p.String() + "0", "20000000000000"} { // the last is x^53 alone
		if err := new(Polynomial).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	content := noise(newRand(b), 64<<20)
	c := NewChunker(testPolynomial)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		err := c.Split(bytes.NewReader(content), int64(len(content)), func(int64, []byte) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
}

func splitInto(b []byte, fn func([]byte) error) error {
	return NewChunker(testPolynomial).Split(bytes.NewReader(b), int64(len(b)), func(_ int64, c []byte) error { return fn(c) })
}

// BenchmarkPipeline is cutting, naming and compressing on two goroutines: what uploading costs before any network.
func BenchmarkPipeline(b *testing.B) {
	r := newRand(b)
	for _, kind := range []struct {
		name    string
		content []byte
	}{{"text", prose(r, 64<<20)}, {"noise", noise(r, 64<<20)}} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, workers), func(b *testing.B) {
				b.SetBytes(int64(len(kind.content)))
				for b.Loop() {
					var wg sync.WaitGroup
					for i := range workers {
						part := kind.content[i*len(kind.content)/workers : (i+1)*len(kind.content)/workers]
						wg.Go(func() {
							var dst []byte
							if err := splitInto(part, func(c []byte) error {
								_ = IDOf(c)
								dst = Encode(dst[:0], c)
								return nil
							}); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
			})
		}
	}
}

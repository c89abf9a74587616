package blobs

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// mapStore is a Store in a map that counts its requests and lets a test step in before each. The store in blobs/mem
// cannot serve here: it imports this package.
type mapStore struct {
	beforeGet func(ctx context.Context, key string, offset, length int64) error
	beforePut func(ctx context.Context, key string, body []byte) error

	mu      sync.Mutex
	objects map[string][]byte
	gets    int
	puts    int
	bytes   int64 // returned by Get
}

func newMapStore() *mapStore { return &mapStore{objects: make(map[string][]byte)} }

func (s *mapStore) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	s.mu.Lock()
	s.gets++
	s.mu.Unlock()
	if s.beforeGet != nil {
		if err := s.beforeGet(ctx, key, offset, length); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, ok := s.objects[key]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, ErrNotExist)
	}
	body = body[min(offset, int64(len(body))):]
	if length >= 0 {
		body = body[:min(length, int64(len(body)))]
	}
	s.bytes += int64(len(body))
	return bytes.Clone(body), nil
}

func (s *mapStore) Put(ctx context.Context, key string, body []byte) error {
	if s.beforePut != nil {
		if err := s.beforePut(ctx, key, body); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	s.objects[key] = bytes.Clone(body)
	return nil
}

func (s *mapStore) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return ErrUnsupported
}

func (s *mapStore) Delete(ctx context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

func (s *mapStore) List(ctx context.Context, prefix, after string, limit int) ([]Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Object
	for key, body := range s.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			found = append(found, Object{Key: key, Size: int64(len(body))})
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	return found, nil
}

func (s *mapStore) Presign(context.Context, string, time.Duration, PresignOptions) (*url.URL, error) {
	return nil, ErrUnsupported
}

func (s *mapStore) URL() string { return "map:" }

// counts returns the Gets and Puts so far.
func (s *mapStore) counts() (gets, puts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets, s.puts
}

// body returns an object's bytes, nil if there is none.
func (s *mapStore) body(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key]
}

// change replaces an object's bytes behind everybody's back.
func (s *mapStore) change(key string, f func([]byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = f(bytes.Clone(s.objects[key]))
}

// newRand returns a seeded source and prints the seed of a failed test.
func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// noise returns n bytes that do not compress.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}

// prose returns n bytes that compress like source code.
func prose(r *rand.Rand, n int) []byte {
	words := strings.Fields("func return error nil context the of chunk pack store if else for range := == != { } ( ) " +
		"length offset reader writer string bytes int64 byte import package var const type struct interface")
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		b = append(b, " \n\t"[r.IntN(3)])
	}
	return b[:n]
}

// content is a chunk a test wrote.
type content struct {
	ref  Ref
	want []byte
}

// pack writes chunks through a Packer and returns them with their references.
func pack(t testing.TB, store Store, o PackerOptions, chunks ...[]byte) []content {
	t.Helper()
	p := NewPacker(store, o)
	defer p.Close()
	var all []content
	for _, c := range chunks {
		ref, err := p.Add(t.Context(), KindData, IDOf(c), c)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content{ref, c})
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return all
}

// mustRead reads a chunk and compares it.
func mustRead(t testing.TB, r *Reader, c content) {
	t.Helper()
	got, err := r.Chunk(t.Context(), c.ref)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, c.want) {
		t.Fatalf("chunk %s: %d bytes that differ from the %d written", c.ref.ID, len(got), len(c.want))
	}
}

func newReader(t testing.TB, store Store, o ReaderOptions) *Reader {
	r := NewReader(store, o)
	t.Cleanup(r.Close)
	return r
}

func newCache(t testing.TB, dir string, limit int64) *PackCache {
	t.Helper()
	c, err := OpenPackCache(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkCache(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

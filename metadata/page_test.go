package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"wsfs/blobs"
)

func leafRun(n int) *run {
	r := &run{}
	for i := range n {
		r.add(fmt.Appendf(nil, "common%05d", i*7), fmt.Appendf(nil, "v%d", i))
	}
	return r
}

func branchRun(n int) *run {
	r := &run{}
	for i := range n {
		r.add(fmt.Appendf(nil, "common%05d", i*7), blobs.AppendRef(nil, blobs.Ref{ID: blobs.IDOf([]byte{byte(i)}), Raw: uint32(i)}))
	}
	return r
}

// TestPageBytes pins the page format: stores hold such pages.
func TestPageBytes(t *testing.T) {
	r := &run{}
	r.add([]byte("apple"), []byte("1"))
	r.add([]byte("apricot"), []byte{})
	want := []byte("\x01\x00\x00\x02\x00\x00\x00\x02ap\x03\x01ple1\x05\x00ricot")
	if got := r.encode(0, 2).content; !bytes.Equal(got, want) {
		t.Errorf("leaf %q, want %q", got, want)
	}
	b := branchRun(3)
	got := b.encode(1, 3).content
	want = []byte("\x01\x01\x00\x09\x00\x00\x00\x03common000")
	for i := range 3 {
		want = append(want, b.value(i)...)
	}
	want = append(want, "\x0207\x0214"...)
	if !bytes.Equal(got, want) {
		t.Errorf("branch %q, want %q", got, want)
	}
}

func TestPageSearch(t *testing.T) {
	for _, n := range []int{1, 2, 3, 100, 300} {
		p, err := decodePage(leafRun(n).encode(0, n).content)
		if err != nil {
			t.Fatal(err)
		}
		for i := -3; i < 7*n+3; i++ {
			at, found := p.find(fmt.Appendf(nil, "common%05d", max(i, 0)))
			if want := (max(i, 0) + 6) / 7; at != min(want, n) || found != (max(i, 0)%7 == 0 && want < n) {
				t.Fatalf("n=%d: key %d found at %d, %v", n, i, at, found)
			}
		}
		for key, want := range map[string]int{"": 0, "a": 0, "common": 0, "commoo": n, "x": n, "com": 0} {
			if at, found := p.find([]byte(key)); at != want || found {
				t.Errorf("n=%d: key %q found at %d, %v", n, key, at, found)
			}
		}
	}
	for _, n := range []int{2, 3, 100, 300} {
		p, err := decodePage(branchRun(n).encode(3, n).content)
		if err != nil {
			t.Fatal(err)
		}
		if p.children() != n {
			t.Fatalf("%d children, want %d", p.children(), n)
		}
		for i := range 7*n + 20 {
			if at := p.child(fmt.Appendf(nil, "common%05d", i)); at != min(i/7, n-1) {
				t.Fatalf("n=%d: key %d in child %d", n, i, at)
			}
		}
		for key, want := range map[string]int{"": 0, "a": 0, "x": n - 1} {
			if at := p.child([]byte(key)); at != want {
				t.Errorf("n=%d: key %q in child %d", n, key, at)
			}
		}
		for i := range n {
			if r := p.ref(i); r.Raw != uint32(i) || r.ID != p.id(i) {
				t.Errorf("child %d is %+v", i, r)
			}
		}
	}
}

func TestDecodePageRefuses(t *testing.T) {
	leaf, branch := leafRun(20).encode(0, 20).content, branchRun(20).encode(1, 20).content
	bad := map[string][]byte{
		"nothing":         nil,
		"version":         append([]byte{2}, leaf[1:]...),
		"level":           append([]byte{1, maxLevel + 1}, branch[2:]...),
		"a byte too many": append(bytes.Clone(leaf), 0),
		"no entry":        {1, 0, 0, 0, 0, 0, 0, 0},
		"one child":       branchRun(1).encodeOne(),
		"huge count":      {1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 1, 'a', 'b'},
		"huge prefix":     {1, 0, 0xff, 0xff, 0, 0, 0, 1, 1, 1, 'a', 'b'},
		"empty key":       {1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'b'},
		"equal keys":      {1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 'a', 1, 0, 'a'},
		"falling keys":    {1, 0, 0, 0, 0, 0, 0, 2, 1, 0, 'b', 1, 0, 'a'},
		"huge value":      {1, 0, 0, 0, 0, 0, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'a'},
	}
	for name, content := range bad {
		if p, err := decodePage(content); !errors.Is(err, ErrPage) || p != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, content := range [][]byte{leaf, branch} {
		for i := range content {
			if _, err := decodePage(content[:i]); !errors.Is(err, ErrPage) {
				t.Errorf("page cut to %d of %d bytes: %v", i, len(content), err)
			}
		}
	}
}

// encodeOne is the branch page of one child that encode would never make.
func (r *run) encodeOne() []byte {
	return append([]byte{pageVersion, 1, 0, 0, 0, 0, 0, 1}, r.value(0)...)
}

// FuzzDecodePage: no content makes the decoder or a search in what it takes panic, and what it takes is in order and
// means the same after encoding it again.
func FuzzDecodePage(f *testing.F) {
	f.Add(leafRun(30).encode(0, 30).content, []byte("common00014"))
	f.Add(leafRun(1).encode(0, 1).content, []byte("a"))
	f.Add(branchRun(30).encode(2, 30).content, []byte("common00015"))
	f.Fuzz(func(t *testing.T, content, key []byte) {
		p, err := decodePage(content)
		if err != nil {
			if !errors.Is(err, ErrPage) {
				t.Fatal(err)
			}
			return
		}
		r, n := &run{}, p.children()
		for i := range n {
			if p.level > 0 {
				r.add(bound(nil, p, i, nil, nil), blobs.AppendRef(nil, p.ref(i)))
				continue
			}
			_, value := p.entry(i)
			r.add(p.appendKey(nil, i), value)
		}
		first := 0
		if p.level > 0 {
			first = 1
		}
		for i := first + 1; i < n; i++ {
			if bytes.Compare(r.key(i-1), r.key(i)) >= 0 {
				t.Fatalf("key %x after %x", r.key(i), r.key(i-1))
			}
		}
		checkSearch(t, p, r, key)
		again, err := decodePage(r.encode(int(p.level), n).content)
		if err != nil || again.children() != n || again.level != p.level {
			t.Fatalf("page does not survive encoding: %v", err)
		}
		for i := range p.offs {
			if !bytes.Equal(p.appendKey(nil, i), again.appendKey(nil, i)) {
				t.Fatalf("key %d differs after encoding", i)
			}
		}
	})
}

func checkSearch(t *testing.T, p *page, r *run, key []byte) {
	if p.level > 0 {
		at := p.child(key)
		if at > 0 && bytes.Compare(r.key(at), key) > 0 || at+1 < len(r.ents) && bytes.Compare(r.key(at+1), key) <= 0 {
			t.Fatalf("key %x is not in child %d", key, at)
		}
		return
	}
	at, found := p.find(key)
	if at > 0 && bytes.Compare(r.key(at-1), key) >= 0 || at < len(r.ents) && bytes.Compare(r.key(at), key) < 0 {
		t.Fatalf("key %x is not at %d", key, at)
	}
	if found != (at < len(r.ents) && bytes.Equal(r.key(at), key)) {
		t.Fatalf("key %x at %d: found is %v", key, at, found)
	}
}

package api

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

func sample(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewTreeWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		w.Node(&Node{Path: []byte(""), Type: TypeDir, Mode: 0o755}),
		w.Node(&Node{Path: []byte("f\xff"), Type: TypeFile, Mode: 0o4711, Mtime: -1, Xattrs: []Xattr{{[]byte("user.\xfe"), []byte{0, 1}}}}),
		w.Data(0, []byte("abc")), w.Data(100, []byte("d")), w.End(200),
		w.Skip(&Error{Message: "cannot read x", Code: "EIO"}),
		w.Node(&Node{Path: []byte("g"), Type: TypeLink, Link: []byte("f\xff")}),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// drain reads a whole stream the way receivers do.
func drain(r io.Reader, fn func(*Node, map[int64]string, int64)) (Totals, error) {
	in, err := NewTreeReader(r)
	if err != nil {
		return Totals{}, err
	}
	for {
		n, err := in.Next()
		if err == io.EOF {
			return in.Totals(), nil
		}
		if err != nil {
			return in.Totals(), err
		}
		pieces := make(map[int64]string)
		for n.Type == TypeFile {
			off, p, err := in.Data()
			if err == io.EOF {
				break
			}
			if err != nil {
				return in.Totals(), err
			}
			pieces[off] = string(p)
		}
		fn(n, pieces, in.Size())
	}
}

func TestStreamRoundTrip(t *testing.T) {
	var nodes []string
	totals, err := drain(bytes.NewReader(sample(t)), func(n *Node, pieces map[int64]string, size int64) {
		nodes = append(nodes, string(n.Path))
		if n.Type != TypeFile {
			return
		}
		if !reflect.DeepEqual(pieces, map[int64]string{0: "abc", 100: "d"}) || size != 200 || n.Mode != 0o4711 || n.Mtime != -1 ||
			string(n.Xattrs[0].Name) != "user.\xfe" || !bytes.Equal(n.Xattrs[0].Value, []byte{0, 1}) {
			t.Errorf("file: %+v %v %d", n, pieces, size)
		}
	})
	if err != nil || !reflect.DeepEqual(nodes, []string{"", "f\xff", "g"}) || totals.Nodes != 3 || totals.Bytes != 4 || len(totals.Errors) != 1 {
		t.Errorf("%q %+v %v", nodes, totals, err)
	}
}

// TestStreamCut cuts the stream at every byte: no prefix passes for the whole.
func TestStreamCut(t *testing.T) {
	whole := sample(t)
	for n := range whole {
		if _, err := drain(bytes.NewReader(whole[:n]), func(*Node, map[int64]string, int64) {}); !errors.Is(err, ErrStream) {
			t.Errorf("cut at %d of %d: %v", n, len(whole), err)
		}
	}
}

func TestStreamRefusesEscapes(t *testing.T) {
	for _, path := range []string{"..", "a/../b", "/etc/passwd", "a//b", "./a", "a/.", "a\x00b", "a/"} {
		for _, n := range []*Node{{Path: []byte(path), Type: TypeDir}, {Path: []byte("x"), Type: TypeLink, Link: []byte(path)}} {
			var b bytes.Buffer
			w, err := NewTreeWriter(&b)
			if err == nil {
				err = errors.Join(w.Node(n), w.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := drain(&b, func(*Node, map[int64]string, int64) {}); !errors.Is(err, ErrStream) {
				t.Errorf("path %q as %s: %v", path, n.Type, err)
			}
		}
	}
}

// FuzzStream: any bytes give nodes or an error, never a panic, and never an error-free stream without its trailer.
func FuzzStream(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var nodes int64
		totals, err := drain(bytes.NewReader(b), func(n *Node, _ map[int64]string, _ int64) {
			nodes++
			if err := checkNode(n); err != nil {
				t.Error(err)
			}
		})
		if err == nil && totals.Nodes != nodes {
			t.Errorf("%d nodes came, the totals say %d", nodes, totals.Nodes)
		}
	})
}

package dir

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"wsfs/blobs"
)

// TestListReadsLittle wants a page to read only the directories that can hold its keys.
func TestListReadsLittle(t *testing.T) {
	root := t.TempDir()
	s, err := Open(t.Context(), &blobs.Location{Scheme: "dir", Path: root}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/1", "b/1/x", "b/2/x", "b/3/x", "c/1", "b-/x"} {
		if err := s.Put(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		keys, read    string
	}{
		{"b/", "b/2/", 1, "b/2/x", "b b/2"},
		{"b/", "b/1/x", 9, "b/2/x b/3/x", "b b/1 b/2 b/3"},
		{"b/3", "", 9, "b/3/x", "b b/3"},
		{"b/3/", "", 9, "b/3/x", "b/3"},
		{"b", "b/2/x", 9, "b/3/x", ". b b/2 b/3"},
		{"", "", 1, "a/1", ". a"},
		{"", "c", 9, "c/1", ". c"},
		{"nope/x", "", 9, "", "nope"},
		{"../", "", 9, "", "."},
	} {
		var read, keys []string
		w := &walk{store: s, ctx: t.Context(), prefix: c.prefix, after: c.after, limit: c.limit}
		w.readDir = func(path string) ([]fs.DirEntry, error) {
			read = append(read, max(".", strings.TrimPrefix(strings.TrimPrefix(path, root), "/")))
			return os.ReadDir(path)
		}
		page, err := w.run()
		for _, o := range page {
			keys = append(keys, o.Key)
		}
		if err != nil || strings.Join(keys, " ") != c.keys || strings.Join(read, " ") != c.read {
			t.Errorf("%s: got %q after reading %q, %v; want %q after %q",
				fmt.Sprintf("prefix %q after %q limit %d", c.prefix, c.after, c.limit), keys, read, err, c.keys, c.read)
		}
	}
}

package metadata

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// examples returns the bytes of the worked examples in a section of docs/formats.md.
func examples(t *testing.T, section string) [][]byte {
	t.Helper()
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var out [][]byte
	for i, block := range strings.Split(text, "```") {
		lines, ok := strings.CutPrefix(block, "hex\n")
		if i%2 == 0 || !ok {
			continue
		}
		var digits string
		for line := range strings.Lines(lines) {
			code, _, _ := strings.Cut(line, ";")
			digits += strings.Join(strings.Fields(code), "")
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestDocumentedFormats: the worked examples are what the code writes and reads.
func TestDocumentedFormats(t *testing.T) {
	leaf := &run{}
	leaf.add([]byte("apple"), []byte("1"))
	leaf.add([]byte("apricot"), nil)
	for section, want := range map[string][]byte{
		"Keys": DirentKey(RootIno, "abc"),
		"Records": AppendInode(nil, &Inode{Mode: 0o100644, UID: 1000, GID: 100, Nlink: 1, Size: 3, Alloc: 3, Xattrs: 2, Version: 300,
			Mtime: 1000, Atime: 1001, Ctime: 999, Btime: 1000, Content: ContentInline, Inline: []byte("abc")}),
		"Tree pages": leaf.encode(0, 2).content,
	} {
		got := examples(t, section)
		if len(got) != 1 || string(got[0]) != string(want) {
			t.Errorf("%s: documented %x, written %x", section, got, want)
		}
	}
}

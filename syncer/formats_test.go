package syncer

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"wsfs/blobs/mem"
)

// example returns the JSON example of docs/formats.md with the given label.
func example(t *testing.T, label string) []byte {
	t.Helper()
	doc, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "```json "+label+"\n")
	body, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatalf("docs/formats.md has no example %q", label)
	}
	return []byte(body)
}

// sameFields demands that two JSON objects have the same fields with the same values.
func sameFields(t *testing.T, what string, a, b []byte) {
	t.Helper()
	var x, y map[string]any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("%s: the document has\n%v\nthe program\n%v", what, x, y)
	}
}

// The documented examples are what this program reads, and writes back field by field.
func TestDocumentedExamples(t *testing.T) {
	ctx, store := context.Background(), mem.New()
	body := example(t, "wsfs.json")
	if err := store.Put(ctx, formatKey, body); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRepo(ctx, store, RepoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(r.Format())
	if err != nil {
		t.Fatal(err)
	}
	sameFields(t, "wsfs.json", body, out)

	body = example(t, "commit")
	if err := store.Put(ctx, "workspaces/demo/commits/fffffffffffffffd", body); err != nil {
		t.Fatal(err)
	}
	c, err := r.Head(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if out, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	sameFields(t, "commit", body, out)

	body = example(t, "lease")
	if err := store.Put(ctx, "workspaces/demo/lease", body); err != nil {
		t.Fatal(err)
	}
	h, live, err := r.LeaseHolder(ctx, "demo")
	if err != nil || live == time.Now().After(h.Renewed.Add(time.Minute)) {
		t.Fatalf("lease %+v, live %v, %v", h, live, err)
	}
	if out, err = json.Marshal(h); err != nil {
		t.Fatal(err)
	}
	sameFields(t, "lease", body, out)
}

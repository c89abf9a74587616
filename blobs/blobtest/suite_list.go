package blobtest

import (
	"cmp"
	"fmt"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
)

// oddKeys are keys whose order as paths is not their order as bytes, or whose names could be taken for something else.
var oddKeys = []string{
	"p/a-/x", "p/a/x", "p/a/-", "p/a/z/z", "p/a0/x", "p/a.x", "p/a.d/x", "p/aa", "p/aa.x", "p/aB/c", "p/A", "p/A_", "p/Z/a",
	"p/_", "p/-", "p/--/x.", "p/.hidden", "p/.h/x", "p/...", "p/a--b", "p/d/e/f/g/h", "p/d/e/f.g", "p/d/e-f", "p/0", "p/00/1",
	"p-q", "p.q/r", "p0", "q", "o/zzz", "P/x", "probe2/x", "p_q/r",
}

// reference is List on a sorted slice.
func reference(sorted []string, prefix, after string, limit int) []string {
	var page []string
	for _, k := range sorted {
		if strings.HasPrefix(k, prefix) && k > after && len(page) < blobs.ListLimit(limit) {
			page = append(page, k)
		}
	}
	return page
}

// checkList compares one page with the reference, keys and sizes.
func checkList(t *testing.T, s blobs.Store, sizes map[string]int, prefix, after string, limit int) []blobs.Object {
	t.Helper()
	page, err := s.List(t.Context(), prefix, after, limit)
	must(t, err)
	want := reference(slices.Sorted(maps.Keys(sizes)), prefix, after, limit)
	got := make([]string, len(page))
	for i, o := range page {
		got[i] = o.Key
		if size, ok := sizes[o.Key]; ok && o.Size != int64(size) {
			t.Errorf("list: %s has size %d, want %d", o.Key, o.Size, size)
		}
		if age := time.Since(o.Modified); !o.Modified.IsZero() && age.Abs() > time.Hour {
			t.Errorf("list: %s was modified %v ago", o.Key, age)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("list prefix %q after %q limit %d:\n got %q\nwant %q", prefix, after, limit, got, want)
	}
	return page
}

func testListOrder(t *testing.T, s blobs.Store) {
	rng := Seed(t)
	sizes := make(map[string]int)
	for i, j := range rng.Perm(len(oddKeys)) {
		sizes[oddKeys[j]] = i
		must(t, s.Put(t.Context(), oddKeys[j], Body(i)))
	}
	prefixes := []string{"", "p", "p/", "p/a", "p/a/", "p/a-", "p/a.", "p/d/e", "p/d/e/", "p/.", "P", "p/a/x", "p/a/x/", "zzz", "nope/", "../", "/"}
	afters := append([]string{"", "p", "p/", "p/a", "p/a/", "p/a/zz", "p/b", "p/d/e/", "zzz", "A", "p/a/x/y"}, oddKeys...)
	for _, prefix := range prefixes {
		for _, after := range afters {
			checkList(t, s, sizes, prefix, after, 1+rng.IntN(5))
		}
		checkList(t, s, sizes, prefix, "", 0)
	}
	for _, limit := range []int{1, 2, 3, 7, len(oddKeys), 5000} {
		walkPages(t, s, sizes, "", limit)
		walkPages(t, s, sizes, "p/", limit)
	}
	// What is deleted is not listed.
	for _, key := range []string{"p/a/x", "p/d/e/f/g/h", "q", "P/x"} {
		must(t, s.Delete(t.Context(), key))
		delete(sizes, key)
	}
	walkPages(t, s, sizes, "", 4)
}

// walkPages reads all pages and stops where the contract says that the end is.
func walkPages(t *testing.T, s blobs.Store, sizes map[string]int, prefix string, limit int) {
	t.Helper()
	after, seen := "", 0
	for range len(sizes) + 2 {
		page := checkList(t, s, sizes, prefix, after, limit)
		seen += len(page)
		if len(page) < blobs.ListLimit(limit) {
			if want := len(reference(slices.Sorted(maps.Keys(sizes)), prefix, "", 0)); seen != want && want < blobs.MaxList {
				t.Errorf("pages of %d below %q showed %d keys, want %d", limit, prefix, seen, want)
			}
			return
		}
		after = page[len(page)-1].Key
	}
	t.Errorf("pages of %d below %q do not end", limit, prefix)
}

// testListPages has more objects than one page holds, in directories of different sizes.
func testListPages(t *testing.T, s blobs.Store) {
	rng := Seed(t)
	const n = blobs.MaxList + 205
	sizes := make(map[string]int, n)
	for len(sizes) < n {
		sizes[randomKey(rng)] = rng.IntN(20)
	}
	keys := make(chan string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for key := range keys {
				if err := s.PutIfAbsent(t.Context(), key, Body(sizes[key])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(sizes)) {
		keys <- key
	}
	close(keys)
	wg.Wait()
	walkPages(t, s, sizes, "", 0)
	walkPages(t, s, sizes, "", 333)
	walkPages(t, s, sizes, "packs/", blobs.MaxList)
	all := slices.SortedFunc(maps.Keys(sizes), cmp.Compare)
	for range 30 {
		at := all[rng.IntN(n)]
		checkList(t, s, sizes, at[:rng.IntN(len(at))], all[rng.IntN(n)], 1+rng.IntN(40))
	}
}

// randomKey looks like the keys of a real store: packs in directories of two hex digits, commits in one directory. No
// such key is a prefix directory of another, since each shape has its own depth.
func randomKey(rng *mrand.Rand) string {
	switch rng.IntN(3) {
	case 0:
		return fmt.Sprintf("packs/%02x/%016x", rng.IntN(16), rng.Uint64())
	case 1:
		return fmt.Sprintf("workspaces/w-%d/commits/%016x", rng.IntN(3), rng.Uint64())
	}
	return fmt.Sprintf("index/%016x", rng.Uint64())
}

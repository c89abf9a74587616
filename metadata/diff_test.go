package metadata

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"wsfs/blobs"
)

// unshared counts the pages of either tree that the other has not.
func unshared(t *testing.T, a, b *Tree) int {
	t.Helper()
	pa, pb := pageSet(t, a), pageSet(t, b)
	n := 0
	for id := range pa {
		if _, ok := pb[id]; !ok {
			n++
		}
	}
	for id := range pb {
		if _, ok := pa[id]; !ok {
			n++
		}
	}
	return n
}

// TestDiffReadsOnlyWhatDiffers: the pages read are those not shared, and a few beside them where ranges that were
// removed or added shift the shared pages against each other.
func TestDiffReadsOnlyWhatDiffers(t *testing.T) {
	rng := newRand(t)
	pages := newMemPages()
	all := numbered(5000)
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, all...)
	height := verifyTree(t, tr)
	for range 100 {
		var list []Change
		lo := rng.IntN(5000)
		for _, c := range all[lo:min(5000, lo+1+rng.IntN(1+rng.IntN(3000)))] {
			list = append(list, Change{c.Key, nil})
		}
		if rng.IntN(2) == 0 {
			for i := range list {
				list[i].Key = fmt.Appendf(nil, "%s+", list[i].Key)
				list[i].Value = []byte("inserted after")
			}
		}
		next, _ := mustApply(t, tr, pages, list...)
		most := unshared(t, tr, next) + 4*height
		for _, pair := range [][2]*Tree{{tr, next}, {next, tr}} {
			pages.reads = 0
			n := 0
			err := Diff(context.Background(), pair[0], pair[1], func(_, _, _ []byte) error { n++; return nil })
			if err != nil || n != len(list) {
				t.Fatalf("%d differences of %d: %v", n, len(list), err)
			}
			if pages.reads > most {
				t.Errorf("%d changes from %d: %d reads, want at most %d", len(list), lo, pages.reads, most)
			}
		}
	}
}

// TestDiffIgnoresLocators: the same leaves stored again elsewhere are the same leaves.
func TestDiffIgnoresLocators(t *testing.T) {
	pages, moved := newMemPages(), newMemPages()
	moved.bytes = 1 << 20
	a, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, numbered(2000)...)
	b, _ := mustApply(t, openSized(blobs.Ref{}, moved, nil, 300), moved, numbered(2000)...)
	if a.root.ID == b.root.ID {
		t.Fatal("the branches should differ in their references")
	}
	branches := 1 // the root is asked for its level first; no cache keeps it here
	for _, level := range pageSet(t, a) {
		if level > 0 {
			branches++
		}
	}
	pages.reads, moved.reads = 0, 0
	err := Diff(context.Background(), a, b, func(key, _, _ []byte) error { return fmt.Errorf("%s differs", key) })
	if err != nil || pages.reads != branches || moved.reads != branches {
		t.Errorf("%d and %d reads, %d wanted: %v", pages.reads, moved.reads, branches, err)
	}
}

func TestDiffStops(t *testing.T) {
	pages := newMemPages()
	tr, _ := mustApply(t, openSized(blobs.Ref{}, pages, nil, 300), pages, numbered(2000)...)
	none := OpenTree(blobs.Ref{}, pages, nil)
	boom := errors.New("boom")
	for _, pair := range [][2]*Tree{{tr, none}, {none, tr}} {
		n := 0
		err := Diff(context.Background(), pair[0], pair[1], func(_, _, _ []byte) error {
			if n++; n == 10 {
				return ErrStop
			}
			return nil
		})
		if err != nil || n != 10 {
			t.Errorf("stopped after %d: %v", n, err)
		}
		if err := Diff(context.Background(), pair[0], pair[1], func(_, _, _ []byte) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("the error of fn is lost: %v", err)
		}
	}
	if err := Diff(context.Background(), none, none, func(_, _, _ []byte) error { return boom }); err != nil {
		t.Error(err)
	}
}

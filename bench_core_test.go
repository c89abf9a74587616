package wsfs

import (
	"fmt"
	"testing"
)

// BenchmarkCreateWrite is what a small file costs in the core: create, one write of 5 KB, close.
func BenchmarkCreateWrite(b *testing.B) {
	t := &testing.T{}
	r := newRig(t)
	o := r.options(b.TempDir())
	o.Log = nil
	w, err := Open(ctx, r.store, "bench", o)
	if err != nil {
		b.Fatal(err)
	}
	defer w.abandon()
	data := make([]byte, 5000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, h, err := w.Create(ctx, RootIno, fmt.Sprintf("f%d", i), 0o644, Owner{}, OpenOptions{Write: true})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.WriteAt(ctx, data, 0); err != nil {
			b.Fatal(err)
		}
		if err := h.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnlink removes what BenchmarkCreateWrite makes.
func BenchmarkUnlink(b *testing.B) {
	t := &testing.T{}
	r := newRig(t)
	o := r.options(b.TempDir())
	o.Log = nil
	w, err := Open(ctx, r.store, "bench", o)
	if err != nil {
		b.Fatal(err)
	}
	defer w.abandon()
	for i := range b.N {
		_, h, err := w.Create(ctx, RootIno, fmt.Sprintf("f%d", i), 0o644, Owner{}, OpenOptions{Write: true})
		if err != nil {
			b.Fatal(err)
		}
		h.Close()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := w.Unlink(ctx, RootIno, fmt.Sprintf("f%d", i)); err != nil {
			b.Fatal(err)
		}
	}
}

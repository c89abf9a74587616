package wsfs

import (
	"fmt"
	"math/rand/v2"
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

// BenchmarkColdRead reads small committed files once each, from an opening with nothing in memory.
func BenchmarkColdRead(b *testing.B) {
	t := &testing.T{}
	r := newRig(t)
	o := r.options(b.TempDir())
	o.Log = nil
	w, err := Open(ctx, r.store, "bench", o)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range b.N {
		if err := w.WriteFile(ctx, fmt.Sprintf("/f%d", i), text(rng, 3000), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		b.Fatal(err)
	}
	o.CacheDir = b.TempDir()
	if w, err = Open(ctx, r.store, "bench", o); err != nil {
		b.Fatal(err)
	}
	defer w.abandon()
	buf := make([]byte, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		a, err := w.Lookup(ctx, RootIno, fmt.Sprintf("f%d", i))
		if err != nil {
			b.Fatal(err)
		}
		h, err := w.OpenInode(ctx, a.Ino, OpenOptions{Passthrough: true})
		if err != nil {
			b.Fatal(err)
		}
		if n, err := h.ReadAt(ctx, buf, 0); err != nil || n != 3000 {
			b.Fatal(n, err)
		}
		if err := h.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

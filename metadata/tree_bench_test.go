package metadata

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"wsfs/blobs"
)

const benchFiles = 1000000

// benchKeys yields the key space of n files, 100 to a directory, in key order: entries, then inodes, then the
// superblock. Names look like those of a package tree; every file is one chunk.
func benchKeys(n int) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		var key, value []byte
		put := func() bool { return yield(Change{key, value}, nil) }
		for d := range n / 100 {
			names := make([][]byte, 100)
			byKey := make(map[string]Ino, 100)
			for i := range names {
				names[i] = DirentKey(Ino(2+d), fmt.Sprintf("module-file-%d.js", i))
				byKey[string(names[i])] = Ino(1000000 + d*100 + i)
			}
			slices.SortFunc(names, slices.Compare)
			for _, k := range names {
				key, value = k, AppendDirent(value[:0], Dirent{byKey[string(k)], syscall.DT_REG})
				if !put() {
					return
				}
			}
		}
		for i := range n {
			ino := Ino(1000000 + i)
			rec := Inode{Ino: ino, Mode: reg, UID: 1000, GID: 1000, Nlink: 1, Size: 2500, Alloc: 2500, Version: uint64(i),
				Mtime: 1700000000000000000 + int64(i)*1000, Atime: 1700000000000000000, Ctime: 1700000000000000000,
				Btime: 1700000000000000000, Content: ContentOne, Ref: blobs.Ref{ID: blobs.IDOf(InodeKey(ino)), Raw: 2500,
					Locator: blobs.Locator{Offset: uint32(i) * 800, Length: 800}}}
			key, value = append(key[:0], InodeKey(ino)...), AppendInode(value[:0], &rec)
			if !put() {
				return
			}
		}
		key, value = SuperKey(), AppendSuper(nil, Super{NextIno: 1000000 + Ino(n)})
		put()
	}
}

func benchTree(b *testing.B, n int, cache *PageCache) (*Tree, *memPages) {
	b.Helper()
	pages := newMemPages()
	tr, _, err := OpenTree(blobs.Ref{}, pages, cache).Apply(context.Background(), pages, benchKeys(n))
	if err != nil {
		b.Fatal(err)
	}
	return tr, pages
}

// cpuMetric reports the processor time of what follows, which other work on the machine does not blur.
func cpuMetric(b *testing.B) func() {
	start := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// nullPages takes pages and keeps none, and names them without hashing: what is left is the tree's own work.
type nullPages struct{ n uint32 }

func (p *nullPages) ReadPage(context.Context, blobs.Ref) ([]byte, error) {
	return nil, blobs.ErrNotExist
}

func (p *nullPages) WritePage(_ context.Context, content []byte) (blobs.Ref, error) {
	p.n++
	return blobs.Ref{ID: blobs.ID{1, byte(p.n >> 16), byte(p.n >> 8), byte(p.n)}, Raw: uint32(len(content))}, nil
}

func BenchmarkApplyBuild(b *testing.B) {
	const n = 3000000
	keys := make([]Change, n)
	for i := range keys {
		keys[i] = Change{InodeKey(Ino(i * 3)), []byte("a value about as long as an inode record, 60 bytes of it .....")}
	}
	b.ReportAllocs()
	done := cpuMetric(b)
	for b.Loop() {
		_, stats, err := OpenTree(blobs.Ref{}, &nullPages{}, nil).Apply(context.Background(), &nullPages{}, changesOf(keys))
		if err != nil || stats.Sets != n {
			b.Fatal(stats, err)
		}
	}
	done()
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkApplyFiles builds the tree of a million files, records, names and page hashes included.
func BenchmarkApplyFiles(b *testing.B) {
	var stats ApplyStats
	done := cpuMetric(b)
	for b.Loop() {
		pages := newMemPages()
		var err error
		_, stats, err = OpenTree(blobs.Ref{}, pages, nil).Apply(context.Background(), pages, benchKeys(benchFiles))
		if err != nil {
			b.Fatal(err)
		}
	}
	done()
	b.ReportMetric(float64(2*benchFiles)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric(float64(stats.BytesWritten)/1e6, "MB")
	b.ReportMetric(float64(stats.PagesWritten), "pages")
	b.ReportMetric(float64(stats.Height), "levels")
}

// BenchmarkApplyOne changes the mtime-sized part of one inode of a million.
func BenchmarkApplyOne(b *testing.B) {
	tr, pages := benchTree(b, benchFiles, NewPageCache(1<<30))
	rng := rand.New(rand.NewPCG(1, 1))
	ctx := context.Background()
	var written, count, rounds int64
	done := cpuMetric(b)
	for b.Loop() {
		key := InodeKey(Ino(1000000 + rng.IntN(benchFiles)))
		v, _, err := tr.Get(ctx, key)
		if err != nil {
			b.Fatal(err)
		}
		changed := slices.Clone(v)
		changed[len(changed)-1] ^= 1
		_, stats, err := tr.Apply(ctx, pages, changesOf([]Change{{key, changed}}))
		if err != nil || stats.PagesWritten != int64(stats.Height) {
			b.Fatal(stats, err)
		}
		written += stats.BytesWritten
		count += stats.PagesWritten
		rounds++
	}
	done()
	b.ReportMetric(float64(written)/float64(rounds), "written-B/op")
	b.ReportMetric(float64(count)/float64(rounds), "pages/op")
}

func BenchmarkGet(b *testing.B) {
	tr, _ := benchTree(b, benchFiles, NewPageCache(1<<30))
	ctx := context.Background()
	run := func(b *testing.B, rng *rand.Rand, among int) {
		key := InodeKey(Ino(1000000 + rng.IntN(among)))
		if _, ok, err := tr.Get(ctx, key); err != nil || !ok {
			b.Error(ok, err)
		}
	}
	for name, among := range map[string]int{"near": 5000, "far": benchFiles} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			done := cpuMetric(b)
			for b.Loop() {
				run(b, rng, among)
			}
			done()
		})
	}
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for pb.Next() {
				run(b, rng, benchFiles)
			}
		})
	})
}

func BenchmarkScan(b *testing.B) {
	tr, _ := benchTree(b, benchFiles, nil) // every page is decoded again
	n := 0
	done := cpuMetric(b)
	for b.Loop() {
		n = 0
		if err := tr.Scan(context.Background(), nil, nil, func(_, _ []byte) error { n++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
	done()
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func BenchmarkDecodePage(b *testing.B) {
	tr, pages := benchTree(b, 10000, nil)
	var content []byte
	for _, p := range pages.pages {
		if len(p) > len(content) {
			content = p
		}
	}
	_ = tr
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	done := cpuMetric(b)
	for b.Loop() {
		if _, err := decodePage(content); err != nil {
			b.Fatal(err)
		}
	}
	done()
}

// BenchmarkDiffOne compares two states of a million files that differ in one, pages cached.
func BenchmarkDiffOne(b *testing.B) {
	tr, pages := benchTree(b, benchFiles, NewPageCache(1<<30))
	next, _ := mustApply(b, tr, pages, Change{InodeKey(1000000 + benchFiles/2), []byte("x")})
	b.ResetTimer()
	done := cpuMetric(b)
	for b.Loop() {
		n := 0
		if err := Diff(context.Background(), tr, next, func(_, _, _ []byte) error { n++; return nil }); err != nil || n != 1 {
			b.Fatal(n, err)
		}
	}
	done()
}

// BenchmarkCheck checks a sound tree of a million files.
func BenchmarkCheck(b *testing.B) {
	tr := checkTree(b, benchFiles)
	b.ReportAllocs()
	done := cpuMetric(b)
	for b.Loop() {
		r, err := Check(context.Background(), tr, CheckOptions{})
		if err != nil || !r.OK() || r.Counts.Files != benchFiles {
			b.Fatal(r.Problems[:min(3, len(r.Problems))], err)
		}
	}
	done()
	b.ReportMetric(float64(benchFiles)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

// checkTree builds a sound tree of n files, 100 to a directory.
func checkTree(t testing.TB, n int) *Tree {
	pages := newMemPages()
	dirs := n / 100
	root := Inode{Ino: RootIno, Mode: dir, Nlink: uint32(2 + dirs), Parent: RootIno, Entries: uint64(dirs)}
	list := []Change{{InodeKey(RootIno), AppendInode(nil, &root)}}
	for d := range dirs {
		n := Inode{Ino: Ino(2 + d), Mode: dir, Nlink: 2, Parent: RootIno, Entries: 100}
		list = append(list, Change{InodeKey(n.Ino), AppendInode(nil, &n)},
			Change{DirentKey(RootIno, fmt.Sprint("package-", d)), AppendDirent(nil, Dirent{n.Ino, syscall.DT_DIR})})
	}
	for c := range benchKeys(n) {
		if c.Key[0] != KeySuper {
			list = append(list, Change{slices.Clone(c.Key), slices.Clone(c.Value)})
		}
	}
	list = append(list, Change{SuperKey(), AppendSuper(nil, Super{NextIno: Ino(1000000 + n), Inodes: uint64(1 + dirs + n), Bytes: uint64(n) * 2500})})
	slices.SortFunc(list, func(a, b Change) int { return slices.Compare(a.Key, b.Key) })
	tr, _ := mustApply(t, OpenTree(blobs.Ref{}, pages, nil), pages, list...)
	return tr
}

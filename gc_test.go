package wsfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"wsfs/syncer"
)

// TestJournalGivesSpaceBack: content that was committed does not stay in the journal.
func TestJournalGivesSpaceBack(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	w := r.open("demo", dir)
	random := rand.NewChaCha8([32]byte{2})
	for round := range 4 {
		for i := range 1000 {
			if i%100 == 0 {
				ok(t, w.MkdirAll(ctx, fmt.Sprintf("/d%d/%d", round, i/100), 0o755))
			}
			b := make([]byte, 20_000)
			must[int](t)(random.Read(b))
			ok(t, w.WriteFile(ctx, fmt.Sprintf("/d%d/%d/f%d", round, i/100, i), b, 0o644))
		}
		must[*syncer.Commit](t)(w.Commit(ctx))
	}
	ok(t, w.live.DropContentLogs())
	after := contentBytes(t, dir)
	t.Logf("content logs: %d MiB", after>>20)
	if after > 33<<20 {
		t.Errorf("%d MiB of content stay", after>>20)
	}
}

func contentBytes(t *testing.T, dir string) (total int64) {
	t.Helper()
	names := must[[]string](t)(filepath.Glob(filepath.Join(dir, "meta", "*.content")))
	for _, n := range names {
		st := must[os.FileInfo](t)(os.Stat(n))
		total += st.Size()
	}
	return total
}

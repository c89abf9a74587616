package metadata

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"wsfs/blobs"
)

// pagesInMemory is a page store for trees of these tests.
type pagesInMemory struct {
	mu sync.Mutex
	m  map[blobs.ID][]byte
}

func (p *pagesInMemory) ReadPage(_ context.Context, ref blobs.Ref) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[ref.ID], nil
}

func (p *pagesInMemory) WritePage(_ context.Context, content []byte) (blobs.Ref, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := blobs.IDOf(content)
	p.m[id] = bytes.Clone(content)
	return blobs.Ref{ID: id, Raw: uint32(len(content)), Locator: blobs.Locator{Length: uint32(len(content))}}, nil
}

func newPagesInMemory() *pagesInMemory { return &pagesInMemory{m: map[blobs.ID][]byte{}} }

func (p *pagesInMemory) tree() *Tree { return OpenTree(blobs.Ref{}, p, NewPageCache(1<<20)) }

func openTestLive(t *testing.T, dir string, base *Tree) *Live {
	t.Helper()
	l, err := OpenLive(dir, LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.SetBase(base)
	return l
}

func xattr(i int) []byte { return XattrKey(Ino(i%7+1), fmt.Sprintf("user.%03d", i)) }

// TestLiveAgainstModel runs random ops, commits, reopenings and reads against a map.
func TestLiveAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := context.Background()
	pages := newPagesInMemory()
	base, dir := pages.tree(), t.TempDir()
	l := openTestLive(t, dir, base)
	defer func() { l.Close() }()
	model := map[string]string{}
	for step := range 1500 {
		switch r := rng.IntN(100); {
		case r < 70:
			var muts []Mutation
			for range 1 + rng.IntN(4) {
				k := xattr(rng.IntN(200))
				if rng.IntN(3) == 0 {
					muts = append(muts, Mutation{Key: k})
					delete(model, string(k))
				} else {
					v := bytes.Repeat([]byte{byte(step)}, rng.IntN(3000))
					muts = append(muts, Mutation{Key: k, Value: v})
					model[string(k)] = string(v)
				}
			}
			if _, err := l.Append(muts); err != nil {
				t.Fatal(err)
			}
		case r < 80:
			k := xattr(rng.IntN(200))
			v, ok, err := l.Get(ctx, k)
			want, there := model[string(k)]
			if err != nil || ok != there || string(v) != want {
				t.Fatalf("step %d: Get %q: %d bytes, %v, %v; want %d bytes, %v", step, k, len(v), ok, err, len(want), there)
			}
		case r < 88:
			compareScan(t, l, model, xattr(rng.IntN(200)), PrefixEnd(XattrKey(7, "")))
		case r < 94:
			base = commitTest(t, l, pages, base)
		case r < 96:
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		case r < 98:
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = openTestLive(t, dir, base)
		}
	}
	compareScan(t, l, model, XattrKey(1, ""), PrefixEnd(XattrKey(7, "")))
}

func compareScan(t *testing.T, l *Live, model map[string]string, from, to []byte) {
	t.Helper()
	var got, want []string
	err := l.Scan(context.Background(), from, to, func(k, v []byte) error {
		got = append(got, string(k)+"="+string(v))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if k >= string(from) && k < string(to) {
			want = append(want, k+"="+model[k])
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("scan gave %d keys, want %d", len(got), len(want))
	}
	if len(want) > 2 {
		n := 0
		err := l.Scan(context.Background(), from, to, func(_, _ []byte) error {
			if n++; n == 2 {
				return ErrStop
			}
			return nil
		})
		if err != nil || n != 2 {
			t.Fatalf("a scan stopped after 2 keys gave %d, %v", n, err)
		}
	}
}

// commitTest does with the dirty keys what a commit does.
func commitTest(t *testing.T, l *Live, pages *pagesInMemory, base *Tree) *Tree {
	t.Helper()
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	next, _, err := base.Apply(context.Background(), pages, func(yield func(Change, error) bool) {
		err := s.Dirty(func(key []byte) error {
			v, ok, err := s.Get(key)
			if err != nil {
				return err
			}
			if !ok {
				v = nil
			}
			if !yield(Change{Key: bytes.Clone(key), Value: v}, nil) {
				return ErrStop
			}
			return nil
		})
		if err != nil {
			yield(Change{}, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	l.SetBase(next)
	if err := l.Settle(s.Seq()); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestSnapshotDoesNotMove(t *testing.T) {
	l := openTestLive(t, t.TempDir(), newPagesInMemory().tree())
	defer l.Close()
	put := func(v string) {
		if _, err := l.Append([]Mutation{{Key: xattr(1), Value: []byte(v)}}); err != nil {
			t.Fatal(err)
		}
	}
	put("before")
	wait := l.BeginSnapshot()
	put("after")
	s, err := wait()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := s.Get(xattr(1)); err != nil || !ok || string(v) != "before" {
		t.Errorf("snapshot shows %q, %v, %v", v, ok, err)
	}
	if s.Seq() != 1 {
		t.Errorf("snapshot at op %d, want 1", s.Seq())
	}
	n := 0
	if err := s.Dirty(func(k []byte) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d dirty keys, %v", n, err)
	}
	if d, err := l.Dirty(); err != nil || !d {
		t.Errorf("dirty %v, %v", d, err)
	}
	if l.Pending() != 2 {
		t.Errorf("%d ops pending, want 2", l.Pending())
	}
}

func TestCleanOpsAreNotDirty(t *testing.T) {
	l := openTestLive(t, t.TempDir(), newPagesInMemory().tree())
	defer l.Close()
	if err := l.AppendClean([]Mutation{{Key: xattr(1), Value: []byte("v")}, {Key: LocalKey("x"), Value: []byte("y")}}); err != nil {
		t.Fatal(err)
	}
	m, err := l.StoreContent(5, []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]Mutation{m}); err != nil {
		t.Fatal(err)
	}
	if b, err := l.Content(5); err != nil || string(b) != "content" {
		t.Errorf("content %q, %v", b, err)
	}
	if d, err := l.Dirty(); err != nil || d {
		t.Errorf("dirty %v, %v", d, err)
	}
}

// TestJournalGapIsRefused takes one journal record away behind the journal's back.
func TestJournalGapIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := openTestLive(t, dir, nil)
	for i := range 3 {
		if _, err := l.Append([]Mutation{{Key: xattr(i), Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := badger.Open(badgerOptions(dir, l.log))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(txn *badger.Txn) error { return txn.Delete(journalKey(2)) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = OpenLive(dir, LiveOptions{})
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "gap") {
		t.Errorf("a journal with a gap: %v", err)
	}
}

func TestDamagedDirectoryIsRefusedAndKept(t *testing.T) {
	dir := t.TempDir()
	l := openTestLive(t, dir, nil)
	if _, err := l.Append([]Mutation{{Key: xattr(1), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "MANIFEST")
	if err := os.WriteFile(manifest, []byte("not a manifest"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLive(dir, LiveOptions{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged database: %v", err)
	}
	if b, err := os.ReadFile(manifest); err != nil || string(b) != "not a manifest" {
		t.Errorf("the damaged file was changed: %q, %v", b, err)
	}
}

const appenderEnv = "WSFS_TEST_APPENDER"

// TestMain runs this binary as the process to be killed where asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderEnv); dir != "" {
		if err := appendForever(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// appendForever appends op i = {attribute i, counter = i}, and prints i after some syncs.
func appendForever(dir string, out io.Writer) error {
	l, err := OpenLive(dir, LiveOptions{})
	if err != nil {
		return err
	}
	pad := bytes.Repeat([]byte("p"), 900)
	for i := uint64(1); ; i++ {
		n := binary.BigEndian.AppendUint64(nil, i)
		_, err := l.Append([]Mutation{{Key: XattrKey(1, fmt.Sprintf("n%09d", i)), Value: append(n, pad...)}, {Key: LocalKey("count"), Value: n}})
		if err != nil {
			return err
		}
		if i%500 == 0 {
			if err := l.Sync(); err != nil {
				return err
			}
			fmt.Fprintln(out, i)
		}
	}
}

// TestKillLeavesPrefix kills a process that appends ops: what is left is a prefix with everything that was synced.
func TestKillLeavesPrefix(t *testing.T) {
	for round := range 3 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), appenderEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var synced uint64
		for s := bufio.NewScanner(out); s.Scan(); {
			if synced == 0 { // it has begun
				time.AfterFunc(time.Duration(100+150*round)*time.Millisecond, func() { cmd.Process.Kill() })
			}
			if synced, err = strconv.ParseUint(s.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if cmd.Wait() == nil {
			t.Fatal("the appender ended by itself")
		}
		l := openTestLive(t, dir, nil)
		count, err := readUint(l.view.txn, LocalKey("count"))
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		err = l.ScanLocal(XattrKey(1, ""), func(_, v []byte) error {
			if n++; binary.BigEndian.Uint64(v) != n {
				return fmt.Errorf("op %d is missing", n)
			}
			return nil
		})
		if err != nil || n != count || l.LastSeq() != count {
			t.Errorf("%d ops are there, the counter says %d, the journal ends at %d: %v", n, count, l.LastSeq(), err)
		}
		if n < synced || synced == 0 {
			t.Errorf("%d ops are there, %d were synced", n, synced)
		}
		t.Logf("killed after %d ops, %d synced", n, synced)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestContentThatWasNeverWritten: after a power loss a pointer may be ahead of its bytes; that is found and told.
func TestContentThatWasNeverWritten(t *testing.T) {
	dir := t.TempDir()
	l := openTestLive(t, dir, nil)
	for ino := Ino(5); ino < 7; ino++ {
		m, err := l.StoreContent(ino, bytes.Repeat([]byte{byte(ino)}, 1000))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append([]Mutation{m}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(l.content.path(1), 1500); err != nil {
		t.Fatal(err)
	}
	l = openTestLive(t, dir, nil)
	defer l.Close()
	if lost := l.Lost(); !slices.Equal(lost, []Ino{6}) {
		t.Errorf("lost %v, want inode 6", lost)
	}
	if b, err := l.Content(5); err != nil || len(b) != 1000 || b[999] != 5 {
		t.Errorf("content before it: %d bytes, %v", len(b), err)
	}
	if _, err := l.Content(6); !errors.Is(err, ErrDamaged) {
		t.Errorf("lost content: %v", err)
	}
}

// TestContentLogsGo: a log is removed when nothing points into it, and not while a snapshot may read it.
func TestContentLogsGo(t *testing.T) {
	l := openTestLive(t, t.TempDir(), nil)
	defer l.Close()
	big := make([]byte, contentLogSize/2)
	for ino := Ino(5); ino < 8; ino++ { // fills one log and begins another
		m, err := l.StoreContent(ino, big)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append([]Mutation{m}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for ino := Ino(5); ino < 7; ino++ {
		if err := l.AppendClean([]Mutation{{Key: ContentKey(ino)}}); err != nil {
			t.Fatal(err)
		}
	}
	exists := func() bool { _, err := os.Stat(l.content.path(1)); return err == nil }
	if err := l.DropContentLogs(); err != nil || !exists() {
		t.Errorf("the log went under a snapshot: %v", err)
	}
	if b, err := s.Content(5); err != nil || len(b) != len(big) {
		t.Errorf("snapshot: %d bytes, %v", len(b), err)
	}
	s.Close()
	if err := l.DropContentLogs(); err != nil || exists() {
		t.Errorf("the log is still there: %v", err)
	}
	if b, err := l.Content(7); err != nil || len(b) != len(big) {
		t.Errorf("content in the next log: %d bytes, %v", len(b), err)
	}
	if l.ContentBytes() != int64(len(big)) {
		t.Errorf("%d bytes of content", l.ContentBytes())
	}
}

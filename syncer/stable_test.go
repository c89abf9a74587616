package syncer

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"wsfs/metadata"
)

func TestLiveFileAtRest(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	content := randomBytes(1, 2<<20)
	ino := h.make(metadata.RootIno, "live", 0o100644)
	f := h.stageLive(ino, content)
	c := h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{"live": string(content)})
	if !h.synced[h.number] {
		t.Error("a live file was read without a sync: what is written through a mapping later would not show")
	}
	if h.dirty() == 0 {
		t.Fatal("a live file should stay dirty")
	}
	// Nothing moved: it is not read again, and there is no new commit.
	before := e.count.Snapshot()
	if again := h.commit(t); again.Number != c.Number {
		t.Errorf("commit %d of nothing new", again.Number)
	}
	if n := e.count.Snapshot().Sub(before).Total().Requests; n != 0 {
		t.Errorf("%d requests for nothing new", n)
	}
	if s := h.w.Status(); !h.w.mustLook() || s.Unstable != 0 {
		t.Errorf("the writer should look at live files by itself: %+v", s)
	}
	// Attributes alone change: the content is still not read.
	h.op(func() { n := h.inode(ino); n.UID = 7; h.setInode(n) })
	c = h.commit(t)
	if c.Stats.Read != 0 || c.Number != 3 {
		t.Errorf("commit %d read %d bytes", c.Number, c.Stats.Read)
	}
	// The kernel writes, and nobody tells us.
	if _, err := f.WriteAt([]byte("changed"), 1<<20); err != nil {
		t.Fatal(err)
	}
	copy(content[1<<20:], "changed")
	if _, err := f.WriteAt([]byte("longer"), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	content = append(content, "longer"...)
	expectFiles(t, e.repo, h.commit(t), map[string]string{"live": string(content)})
	h.closeLive(ino)
	c = h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{"live": string(content)})
	if h.dirty() != 0 || h.w.mustLook() {
		t.Errorf("closed and committed: %d keys dirty", h.dirty())
	}
	st, err := os.Stat(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := h.base.Get(context.Background(), metadata.InodeKey(ino))
	if err != nil {
		t.Fatal(err)
	}
	n, err := metadata.DecodeInode(ino, v)
	if err != nil || n.Mtime != st.ModTime().UnixNano() || n.Live || n.Staging != 0 {
		t.Errorf("record %+v, %v; the file's mtime is %d", n, err, st.ModTime().UnixNano())
	}
}

// A file that never rests keeps what it had; the rest of the commit is made.
func TestFileThatNeverRests(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	old := randomBytes(1, 300<<10)
	known := h.create(metadata.RootIno, "known", old)
	h.create(metadata.RootIno, "still", []byte("1"))
	h.commit(t)
	fresh := h.make(metadata.RootIno, "fresh", 0o100644)
	files := []*os.File{h.stageLive(known, randomBytes(2, 400<<10)), h.stageLive(fresh, randomBytes(3, 200<<10))}
	h.create(metadata.RootIno, "other", randomBytes(4, 200<<10))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, f := range files {
				if _, err := f.WriteAt([]byte{i}, 5); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	h.freezes = 0
	c := h.commit(t)
	if c.Unstable != 2 || h.freezes != 3 || h.w.Status().Unstable != 2 || !h.w.mustLook() {
		t.Errorf("%d unstable after %d freezes", c.Unstable, h.freezes)
	}
	s := h.history[len(h.history)-1]
	if want := []metadata.Ino{known, fresh}; !slices.Equal(s.Unstable, want) {
		t.Errorf("settlement has %v unstable, want %v", s.Unstable, want)
	}
	if slices.ContainsFunc(s.Files, func(f SettledFile) bool { return f.Ino == known || f.Ino == fresh }) {
		t.Errorf("unstable files are settled: %+v", s.Files)
	}
	expectFiles(t, e.repo, c, map[string]string{"known": string(old), "still": "1", "fresh": "",
		"other": string(randomBytes(4, 200<<10))})
	close(stop)
	<-done
	c = h.commit(t)
	if c.Unstable != 0 {
		t.Errorf("%d unstable at rest", c.Unstable)
	}
	for i, name := range []string{"known", "fresh"} {
		want, err := os.ReadFile(files[i].Name())
		if err != nil {
			t.Fatal(err)
		}
		if filesOf(t, e.repo, c)[name] != string(want) {
			t.Errorf("%s is not what was written last", name)
		}
	}
}

// Two files are written one after the other, always the same number into both. Whatever a commit catches must be a
// state that was there at one instant: equal, or the first one ahead by one.
func TestFilesOfOneInstant(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{StableTries: 10})
	var files []*os.File
	for _, name := range []string{"a", "b"} {
		files = append(files, h.stageLive(h.make(metadata.RootIno, name, 0o100644), make([]byte, 300<<10)))
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := uint64(1); ; i++ {
			for _, f := range files {
				if _, err := f.WriteAt(binary.BigEndian.AppendUint64(nil, i), 0); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(i%7) * 5 * time.Millisecond)
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i%5) * 20 * time.Millisecond):
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	caught := 0
	var last uint64
	for deadline := time.Now().Add(20 * time.Second); caught < 8 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		c := h.commit(t)
		if c.Unstable > 0 {
			continue
		}
		got := filesOf(t, e.repo, c)
		a, b := binary.BigEndian.Uint64([]byte(got["a"])), binary.BigEndian.Uint64([]byte(got["b"]))
		if a != b && a != b+1 {
			t.Errorf("commit %d has %d and %d, which were never there together", c.Number, a, b)
		}
		if a > last {
			caught++
		}
		last = a
	}
	if caught < 3 {
		t.Errorf("only %d states were caught", caught)
	}
	t.Logf("%d states caught", caught)
}

// What was read of files that stay put is not read again because another one moved.
func TestFilesAtRestAreReadOnce(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	ino := h.make(metadata.RootIno, "live", 0o100644)
	f := h.stageLive(ino, randomBytes(1, 200<<10))
	h.create(metadata.RootIno, "still", randomBytes(2, 3<<20))
	moves := 0
	h.onOpen = func(number uint64) {
		if number == 2 && moves == 0 { // the still one is opened: the live one moves
			moves++
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				t.Error(err)
			}
		}
	}
	c := h.commit(t)
	if h.freezes != 2 || c.Unstable != 0 {
		t.Errorf("%d freezes, %d unstable", h.freezes, c.Unstable)
	}
	if c.Stats.Read > 200<<10 {
		t.Errorf("%d bytes read in the second round", c.Stats.Read)
	}
	if got := filesOf(t, e.repo, c); got["live"][0] != 'x' || got["still"] != string(randomBytes(2, 3<<20)) {
		t.Error("content is wrong")
	}
}

// A staging file that goes away between freeze and read belongs to a file that was deleted meanwhile.
func TestFileDeletedWhileRead(t *testing.T) {
	e := newEnv(t)
	h := e.open("w", "a", WriterOptions{})
	h.create(metadata.RootIno, "stays", randomBytes(1, 200<<10))
	h.create(metadata.RootIno, "goes", randomBytes(2, 200<<10))
	gone := false
	h.thaw = func(Frozen) {
		if !gone {
			gone = true
			h.unlink(metadata.RootIno, "goes", false)
			if err := os.Remove(h.path(2)); err != nil {
				t.Error(err)
			}
		}
	}
	c := h.commit(t)
	expectFiles(t, e.repo, c, map[string]string{"stays": string(randomBytes(1, 200<<10))})
	if c.Unstable != 0 {
		t.Errorf("%d unstable", c.Unstable)
	}
}

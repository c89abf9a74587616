package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"wsfs"
	"wsfs/api"
)

func TestFiles(t *testing.T) {
	both(t, api.Options{Version: "v"}, func(t *testing.T, w *wsfs.Workspace, c *api.Client) {
		ctx := t.Context()
		body := make([]byte, 1<<20+17)
		rng := rand.NewChaCha8([32]byte{1})
		_, _ = rng.Read(body)
		if _, err := c.Mkdir(ctx, "/a/b", 0o750, true); err != nil {
			t.Fatal(err)
		}
		totals, err := c.PutFile(ctx, "/a/b/f\xff", 0o640, bytes.NewReader(body))
		if err != nil || totals.Bytes != int64(len(body)) {
			t.Fatal(totals, err)
		}
		e, err := c.Stat(ctx, "/a/b/f\xff", false)
		if err != nil {
			t.Fatal(err)
		}
		if e.Mode != "0640" || e.Size != int64(len(body)) || e.RawName() != "f\xff" || e.RawPath() != "/a/b/f\xff" || e.Type != "file" {
			t.Errorf("stat: %+v", e)
		}
		for _, r := range [][2]int64{{0, -1}, {0, 1}, {5, 10}, {1 << 20, -1}, {1 << 20, 100}, {int64(len(body)) - 1, 1}, {3, 0}} {
			rc, err := c.Cat(ctx, "/a/b/f\xff", r[0], r[1])
			if err != nil {
				t.Fatal(r, err)
			}
			got, err := io.ReadAll(rc)
			want := body[r[0]:]
			if r[1] >= 0 {
				want = want[:min(r[1], int64(len(want)))]
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("range %v: %d bytes, %v; want %d", r, len(got), err, len(want))
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
		}
		// Replacing keeps the mode and takes all of the new content or nothing.
		broken := io.MultiReader(strings.NewReader("new"), failing{})
		if _, err := c.PutFile(ctx, "/a/b/f\xff", 0, broken); err == nil {
			t.Error("a body that breaks off was stored")
		}
		if got, err := w.ReadFile(ctx, "/a/b/f\xff"); err != nil || !bytes.Equal(got, body) {
			t.Errorf("after a broken put: %d bytes, %v", len(got), err)
		}
		if _, err := c.PutFile(ctx, "/a/b/f\xff", 0, strings.NewReader("new")); err != nil {
			t.Fatal(err)
		}
		if e, err = c.Stat(ctx, "/a/b/f\xff", false); err != nil || e.Size != 3 || e.Mode != "0640" {
			t.Errorf("after replacing: %+v, %v", e, err)
		}
		names := list(t, c, "/a/b", false)
		if !slices.Equal(names, []string{"/a/b/f\xff"}) {
			t.Errorf("nothing may stay beside the file: %q", names)
		}
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the source broke") }

func list(t *testing.T, c *api.Client, p string, recursive bool) []string {
	t.Helper()
	var names []string
	if err := c.List(t.Context(), p, recursive, func(e *api.Entry) error { names = append(names, e.RawPath()); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestTreeOperations(t *testing.T) {
	both(t, api.Options{}, func(t *testing.T, w *wsfs.Workspace, c *api.Client) {
		ctx := t.Context()
		for i := range 1500 { // more than one batch of a directory
			if err := w.MkdirAll(ctx, fmt.Sprintf("/d/%04d/x", i), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got := list(t, c, "/d", false); len(got) != 1500 {
			t.Errorf("%d entries listed, want 1500", len(got))
		}
		if got := list(t, c, "/d", true); len(got) != 3000 {
			t.Errorf("%d entries listed recursively, want 3000", len(got))
		}
		if _, err := c.Copy(ctx, "/d", "/e", true); err != nil {
			t.Fatal(err)
		}
		if got := list(t, c, "/e", true); len(got) != 3000 {
			t.Errorf("%d entries copied, want 3000", len(got))
		}
		if err := c.Rename(ctx, "/e", "/d/e", false); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(ctx, "/d", true, false); err != nil {
			t.Fatal(err)
		}
		if got := list(t, c, "/", true); len(got) != 0 {
			t.Errorf("left after rm: %q", got)
		}
		if err := c.Remove(ctx, "/d", true, true); err != nil {
			t.Errorf("rm -f of what is not there: %v", err)
		}
	})
}

func TestErrorsCarryErrno(t *testing.T) {
	both(t, api.Options{}, func(t *testing.T, w *wsfs.Workspace, c *api.Client) {
		ctx := t.Context()
		if err := w.MkdirAll(ctx, "/dir/sub", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteFile(ctx, "/file", []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		long := "/" + strings.Repeat("n", 256)
		_, statErr := c.Stat(ctx, "/missing", false)
		_, dirErr := c.Cat(ctx, "/dir", 0, -1)
		_, mkErr := c.Mkdir(ctx, "/dir", 0o755, false)
		_, longErr := c.Stat(ctx, long, false)
		_, underErr := c.Stat(ctx, "/file/x", false)
		_, cpErr := c.Copy(ctx, "/dir", "/other", false)
		_, selfErr := c.Copy(ctx, "/dir", "/dir/sub/x", true)
		_, getErr := c.GetTree(ctx, "/missing")
		_, putErr := c.PutTree(ctx, "/missing/x", endless())
		_, fileErr := c.PutFile(ctx, "/dir", 0, endless())
		for _, tc := range []struct {
			name string
			err  error
			want error
		}{
			{"stat", statErr, fs.ErrNotExist}, {"cat dir", dirErr, syscall.EISDIR}, {"mkdir", mkErr, syscall.EEXIST},
			{"long", longErr, syscall.ENAMETOOLONG}, {"under a file", underErr, syscall.ENOTDIR}, {"cp", cpErr, syscall.EISDIR},
			{"get", getErr, fs.ErrNotExist}, {"put", putErr, fs.ErrNotExist}, {"put over a directory", fileErr, syscall.EISDIR},
			{"rm dir", c.Remove(ctx, "/dir", false, false), syscall.EISDIR},
			{"rm root", c.Remove(ctx, "/", true, true), syscall.EBUSY},
			{"mv", c.Rename(ctx, "/file", "/dir", false), syscall.EISDIR},
			{"mv -n", c.Rename(ctx, "/dir", "/file", true), syscall.EEXIST},
		} {
			if !errors.Is(tc.err, tc.want) {
				t.Errorf("%s: %v (%#v), want %v", tc.name, tc.err, tc.err, tc.want)
			}
			var ae *api.Error
			if !errors.As(tc.err, &ae) || ae.Message == "" {
				t.Errorf("%s: no api.Error: %#v", tc.name, tc.err)
			}
		}
		var ae *api.Error
		if !errors.As(selfErr, &ae) || ae.Code != api.CodeUsage {
			t.Errorf("cp into itself: %v", selfErr)
		}
	})
}

// endless is a tree stream that never ends: whoever refuses it must do so before it does.
func endless() io.Reader {
	var head bytes.Buffer
	out, err := api.NewTreeWriter(&head)
	if err != nil {
		panic(err)
	}
	if err := errors.Join(out.Node(&api.Node{Type: api.TypeFile, Path: []byte("f")}), out.Flush()); err != nil {
		panic(err)
	}
	return io.MultiReader(&head, &repeat{})
}

// repeat is D frames at growing offsets, for about 4 GiB.
type repeat struct {
	off  int64
	left []byte
}

func (r *repeat) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		if r.off > 4<<30 {
			return 0, io.EOF
		}
		var b bytes.Buffer
		out, err := api.NewTreeWriter(&b)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(out.Data(r.off, make([]byte, api.MaxData)), out.Flush()); err != nil {
			return 0, err
		}
		r.left = b.Bytes()[len(api.Magic):]
		r.off += api.MaxData
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func TestStateRoutes(t *testing.T) {
	both(t, api.Options{Version: "v9", Mount: api.Mount{Dir: "/m"}}, func(t *testing.T, w *wsfs.Workspace, c *api.Client) {
		ctx := t.Context()
		if err := w.WriteFile(ctx, "/f", make([]byte, 5000), 0o644); err != nil {
			t.Fatal(err)
		}
		st, err := c.Status(ctx, true)
		if err != nil || st.Workspace != "test" || st.Version != "v9" || st.Mount.Dir != "/m" || st.Lease == nil || st.Lease.Holder == "" {
			t.Errorf("status: %+v, %v", st, err)
		}
		commit, err := c.Sync(ctx, time.Minute)
		if err != nil || commit.Number < 2 {
			t.Fatalf("sync: %+v, %v", commit, err)
		}
		log, err := c.Log(ctx, 1)
		if err != nil || len(log) != 1 || log[0].Number != commit.Number {
			t.Errorf("log: %+v, %v", log, err)
		}
		if st, err = c.Status(ctx, false); err != nil || st.DirtyBytes != 0 || st.Head.Number != commit.Number {
			t.Errorf("status after sync: %+v, %v", st, err)
		}
		r, err := c.Check(ctx, true, nil)
		if err != nil || len(r.Problems) > 0 || r.Chunks == 0 {
			t.Errorf("check: %+v, %v", r, err)
		}
		space, err := c.Space(ctx)
		if err != nil || space.Total <= space.Free || space.Files <= space.FreeFiles {
			t.Errorf("df: %+v, %v", space, err)
		}
		if err := c.Stop(ctx, api.StopOptions{}, nil); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("stop without a daemon: %v", err)
		}
	})
}

// kernel counts what it is told.
type kernel struct {
	mu      sync.Mutex
	entries map[string]int
	inodes  map[wsfs.Ino]int
}

func (k *kernel) InvalidateEntry(parent wsfs.Ino, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries[fmt.Sprintf("%d/%s", parent, name)]++
}

func (k *kernel) InvalidateInode(ino wsfs.Ino, _, _ int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inodes[ino]++
}

// TestPutTellsTheKernel: every name a put makes or replaces is told to the kernel that has the workspace mounted, which may
// have cached its absence.
func TestPutTellsTheKernel(t *testing.T) {
	k := &kernel{entries: make(map[string]int), inodes: make(map[wsfs.Ino]int)}
	w := open(t)
	w.SetKernel(k)
	c := api.InProcess(api.NewHandler(w, api.Options{Mount: api.Mount{Dir: "/m"}}))
	ctx := t.Context()
	if err := w.WriteFile(ctx, "/old", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	out, err := api.NewTreeWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*api.Node{{Path: []byte("d"), Type: api.TypeDir, Mode: 0o755}, {Path: []byte("d/f"), Type: api.TypeFile},
		{Path: []byte("d/l"), Type: api.TypeSymlink, Target: []byte("x")}, {Path: []byte("d/h"), Type: api.TypeLink, Link: []byte("d/f")},
		{Path: []byte("old"), Type: api.TypeFile}} {
		err = errors.Join(err, out.Node(n))
		if n.Type == api.TypeFile {
			err = errors.Join(err, out.Data(0, []byte("new")), out.End(3))
		}
	}
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutTree(ctx, "/", &b); err != nil {
		t.Fatal(err)
	}
	d, err := w.Stat(ctx, "/d")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1/d", "1/old", fmt.Sprintf("%d/f", d.Ino), fmt.Sprintf("%d/l", d.Ino), fmt.Sprintf("%d/h", d.Ino)} {
		if k.entries[want] == 0 {
			t.Errorf("entry %s was not told: %v", want, k.entries)
		}
	}
	if k.inodes[d.Ino] == 0 {
		t.Errorf("the new directory's attributes were not told: %v", k.inodes)
	}
	if got, err := w.ReadFile(ctx, "/old"); err != nil || string(got) != "new" {
		t.Errorf("replaced file: %q, %v", got, err)
	}
}

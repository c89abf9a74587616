package dir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/dir"
)

func location(path string) *blobs.Location { return &blobs.Location{Scheme: "dir", Path: path} }

func open(t *testing.T, path string, o dir.Options) *dir.Store {
	t.Helper()
	s, err := dir.Open(t.Context(), location(path), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		return open(t, filepath.Join(t.TempDir(), "made", "on demand"), dir.Options{Create: true})
	})
}

func TestMissingRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	if _, err := dir.Open(t.Context(), location(root), dir.Options{}); !errors.Is(err, blobs.ErrNoStore) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of a missing directory: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := dir.Open(t.Context(), location(path), dir.Options{}); !errors.Is(err, blobs.ErrNoStore) {
			t.Errorf("open of %s: %v", path, err)
		}
	}
	s := open(t, root, dir.Options{Create: true})
	if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the root has mode %v, %v", info.Mode(), err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	blobtest.Refusals(t, s, blobs.ErrNoStore)
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a put brought the missing root back: %v", err)
	}
	open(t, root, dir.Options{Create: true})
	open(t, root, dir.Options{Create: true}) // again is no error
}

// TestTemporaryFiles wants none left by any end of a put, stale ones swept, and those of living writers kept.
func TestTemporaryFiles(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, dir.Options{})
	for i := range 3 {
		if err := s.Put(t.Context(), "k", blobtest.Body(100)); err != nil {
			t.Fatal(err)
		}
		if err := s.PutIfAbsent(t.Context(), "k", blobtest.Body(100)); !errors.Is(err, blobs.ErrExist) {
			t.Fatal(err)
		}
		if err := s.PutIfAbsent(t.Context(), fmt.Sprintf("deep/er/%d", i), blobtest.Body(100)); err != nil {
			t.Fatal(err)
		}
	}
	temp := filepath.Join(root, "~tmp")
	entries, err := os.ReadDir(temp)
	if err != nil || len(entries) != 0 {
		t.Errorf("temporary files left: %v, %v", entries, err)
	}
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "young": time.Hour} {
		path := filepath.Join(temp, name)
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	open(t, root, dir.Options{})
	if _, err := os.Stat(filepath.Join(temp, "old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale file is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(temp, "young")); err != nil {
		t.Errorf("a living writer's file was swept: %v", err)
	}
	open(t, root, dir.Options{Now: func() time.Time { return time.Now().Add(48 * time.Hour) }})
	if _, err := os.Stat(filepath.Join(temp, "young")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("two days later it is still there: %v", err)
	}
}

// TestForeignFiles wants List and Get to pass over what is no object.
func TestForeignFiles(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, dir.Options{})
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lost+found", "with space", "a/~x", "a/ü"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil || len(page) != 1 || page[0].Key != "a/b" {
		t.Errorf("list: %v, %v", page, err)
	}
}

// TestKeyAndPrefix breaks the rule that no key is a prefix directory of another: a clear error and nothing damaged.
func TestKeyAndPrefix(t *testing.T) {
	s := open(t, t.TempDir(), dir.Options{})
	if err := s.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"put on a directory":           s.Put(t.Context(), "a", []byte("y")),
		"put if absent on a directory": s.PutIfAbsent(t.Context(), "a", []byte("y")),
		"put below an object":          s.Put(t.Context(), "a/b/c", []byte("y")),
		"put if absent below it":       s.PutIfAbsent(t.Context(), "a/b/c/d", []byte("y")),
	} {
		if err == nil || errors.Is(err, blobs.ErrExist) || errors.Is(err, blobs.ErrNotExist) || errors.Is(err, blobs.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Get(t.Context(), "a/b/c", 0, -1); !errors.Is(err, blobs.ErrNotExist) {
		t.Errorf("get below an object: %v", err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Errorf("delete of a directory: %v", err)
	}
	if got, err := s.Get(t.Context(), "a/b", 0, -1); err != nil || string(got) != "x" {
		t.Errorf("the object is %q, %v", got, err)
	}
	entries, err := os.ReadDir(filepath.Join(strings.TrimPrefix(s.URL(), "dir://"), "~tmp"))
	if err != nil || len(entries) != 0 {
		t.Errorf("refused puts left %v, %v", entries, err)
	}
}

// TestTwoProcesses stands for them with two stores over one directory: link(2) decides, not a lock of ours.
func TestTwoProcesses(t *testing.T) {
	root := t.TempDir()
	stores := []*dir.Store{open(t, root, dir.Options{}), open(t, root, dir.Options{})}
	for round := range 50 {
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = stores[i%2].PutIfAbsent(t.Context(), fmt.Sprintf("new/dir-%d/key", round), fmt.Appendf(nil, "%d", i))
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, blobs.ErrExist) {
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d writers won", round, won)
		}
	}
}

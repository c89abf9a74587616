package dir_test

import (
	"path/filepath"
	"testing"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/dir"
)

func open(t *testing.T, path string, o dir.Options) *dir.Store {
	t.Helper()
	loc, err := blobs.ParseURL(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.Open(t.Context(), loc, o)
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

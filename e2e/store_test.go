package e2e

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"wsfs/blobs/blobtest"
)

// store is what lies behind the workspaces of one test.
type store struct {
	url    string
	env    []string // credentials
	dir    string   // where its bytes lie on this machine
	server *blobtest.Server
}

// storeKinds are the stores that the round trip is run over.
var storeKinds = []struct {
	name  string
	start func(t *testing.T, dir string) *store
}{
	{"dir", startDir},
	{"versitygw", startVersitygw},
}

// startDir is the embedded store.
func startDir(t *testing.T, dir string) *store {
	path := filepath.Join(dir, "store")
	return &store{url: "dir://" + path, dir: path}
}

// startVersitygw is a real S3 server of this machine; it can be stopped and started.
func startVersitygw(t *testing.T, dir string) *store {
	t.Helper()
	path := filepath.Join(dir, "versitygw")
	server, err := blobtest.StartVersitygw(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &store{url: server.URL, dir: path, server: server,
		env: []string{"AWS_ACCESS_KEY_ID=" + server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + server.SecretKey}}
}

// target names a workspace of the store.
func (s *store) target(workspace string) string { return s.url + "#" + workspace }

// usage returns the bytes and the number of objects in the store.
func (s *store) usage(t *testing.T) (bytes int64, objects int) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		bytes += st.Size
		objects++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, objects
}

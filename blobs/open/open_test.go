package open_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/count"
	"wsfs/blobs/fault"
	"wsfs/blobs/mem"
	"wsfs/blobs/open"
	"wsfs/blobs/retry"
)

func store(t *testing.T, url string, o open.Options) blobs.Store {
	t.Helper()
	s, err := open.Store(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestContract runs the suite through all the wrappers, on every driver.
func TestContract(t *testing.T) {
	t.Run("mem", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobs.Store { return store(t, "mem:", open.Options{}) })
	})
	t.Run("dir", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blobs.Store {
			return store(t, filepath.Join(t.TempDir(), "new"), open.Options{Create: true})
		})
	})
	t.Run("s3", func(t *testing.T) {
		blobtest.Versitygw(t)
		blobtest.Run(t, func(t *testing.T) blobs.Store {
			srv := blobtest.Versitygw(t)
			return store(t, srv.URL, open.Options{AccessKey: srv.AccessKey, SecretKey: srv.SecretKey})
		})
	})
}

// TestCreate makes buckets and directories on demand, and only then.
func TestCreate(t *testing.T) {
	v, r := blobtest.Versitygw(t), blobtest.Rclone(t)
	for name, c := range map[string]struct {
		url string
		srv *blobtest.Server
	}{
		"s3 versitygw":    {v.In("wsfs-made-1/p").URL, v},
		"s3 rclone":       {r.In("wsfs-made-1/p").URL, r},
		"minio versitygw": {v.In("wsfs-made-2/p").MinioURL, v},
		"minio rclone":    {r.In("wsfs-made-2/p").MinioURL, r},
		"dir":             {filepath.Join(t.TempDir(), "a", "b"), v},
	} {
		t.Run(name, func(t *testing.T) {
			o := open.Options{AccessKey: c.srv.AccessKey, SecretKey: c.srv.SecretKey}
			s, err := open.Store(t.Context(), c.url, o)
			if err == nil {
				err = s.Put(t.Context(), "k", []byte("v"))
			}
			if !errors.Is(err, blobs.ErrNoStore) {
				t.Fatalf("a store that is not there: %v", err)
			}
			o.Create = true
			for range 2 { // one that exists is no error
				s = store(t, c.url, o)
			}
			if err := s.Put(t.Context(), "k", []byte("v")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWrap wants a count right around the driver to see the retries of a fault below it.
func TestWrap(t *testing.T) {
	defer mem.Forget("wrapped")
	var c *count.Store
	s := store(t, "mem:wrapped", open.Options{
		Retry: retry.Options{MinDelay: time.Microsecond},
		Wrap: func(d blobs.Store) blobs.Store {
			f := fault.New(d)
			f.Plan(fault.Plan{Op: fault.Put, Times: 2})
			c = count.New(f)
			return c
		},
	})
	if err := s.Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if n := c.Snapshot()[count.Put]; n.Requests != 3 || n.Errors != 2 {
		t.Errorf("the count saw %+v, want 3 requests and 2 errors", n)
	}
	if got, err := store(t, "mem:wrapped", open.Options{}).Get(t.Context(), "k", 0, -1); err != nil || string(got) != "v" {
		t.Errorf("the shared store has %q, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	for url, says := range map[string]string{
		"gopher://x": "unknown scheme", "s3://u:p@bucket": "user name or password", "": "empty",
	} {
		if _, err := open.Store(t.Context(), url, open.Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := open.Store(t.Context(), filepath.Join(t.TempDir(), "none"), open.Options{}); !errors.Is(err, blobs.ErrNoStore) {
		t.Errorf("a missing directory: %v", err)
	}
}

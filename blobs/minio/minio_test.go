package minio_test

import (
	"errors"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/minio"
	"wsfs/blobs/retry"
	"wsfs/blobs/s3/wire"
)

// servers are the real ones; each call gives a fresh bucket.
var servers = map[string]func(testing.TB) *blobtest.Server{"versitygw": blobtest.Versitygw, "rclone": blobtest.Rclone}

func open(t *testing.T, url string, o minio.Options) *minio.Store {
	t.Helper()
	loc, err := blobs.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := minio.Open(t.Context(), loc, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keys(s *blobtest.Server) minio.Options {
	return minio.Options{AccessKey: s.AccessKey, SecretKey: s.SecretKey}
}

// TestContractVersitygw runs the suite on the bare driver, in a bucket of its own.
func TestContractVersitygw(t *testing.T) {
	blobtest.Versitygw(t) // keeps the server up between the subtests
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		srv := blobtest.Versitygw(t)
		return open(t, srv.MinioURL, keys(srv))
	})
}

// TestContractRclone runs the suite below a prefix of a bucket that also holds foreign objects, which must stay out of
// sight. The driver is under package retry: this server answers 500 now and then when requests meet in one directory.
func TestContractRclone(t *testing.T) {
	blobtest.Rclone(t)
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		srv := blobtest.Rclone(t)
		whole := retry.New(open(t, srv.MinioURL, keys(srv)), retry.Options{})
		for _, key := range []string{"a", "pre-fix/x", "pre/fix-/x", "pre/fi", "pre/fiy", "zz"} {
			if err := whole.Put(t.Context(), key, []byte("foreign")); err != nil {
				t.Fatal(err)
			}
		}
		return retry.New(open(t, srv.In(srv.Bucket+"/pre/fix").MinioURL, keys(srv)), retry.Options{})
	}, blobtest.TornOverwrite)
}

// TestMultipart puts bodies above the limit of one piece, conditionally and not.
func TestMultipart(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			srv := server(t)
			s := open(t, srv.MinioURL, keys(srv))
			body := blobtest.Body(wire.Multipart + 1234)
			blobtest.PutTwice(t, s, body)
		})
	}
}

// TestRefusals checks what each server's refusals turn into.
func TestRefusals(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			srv := server(t)
			t.Run("no bucket", func(t *testing.T) {
				blobtest.Refusals(t, open(t, srv.In("wsfs-no-such-bucket").MinioURL, keys(srv)), blobs.ErrNoStore)
			})
			t.Run("wrong secret", func(t *testing.T) {
				blobtest.Refusals(t, open(t, srv.MinioURL, minio.Options{AccessKey: srv.AccessKey, SecretKey: "wrong"}), blobs.ErrDenied)
			})
			t.Run("unknown key", func(t *testing.T) {
				blobtest.Refusals(t, open(t, srv.MinioURL, minio.Options{AccessKey: "nobody", SecretKey: srv.SecretKey}), blobs.ErrDenied)
			})
		})
	}
}

// TestNoCredentials has nothing in the environment and no machine role to ask.
func TestNoCredentials(t *testing.T) {
	srv := blobtest.Versitygw(t)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "MINIO_ROOT_USER", "MINIO_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	s := open(t, srv.MinioURL, minio.Options{})
	blobtest.Refusals(t, s, blobs.ErrDenied)
	_, err := s.Presign(t.Context(), "some/key", time.Minute, blobs.PresignOptions{})
	if !errors.Is(err, blobs.ErrDenied) {
		t.Errorf("presign without credentials: %v", err)
	}
}

// TestEnvironmentCredentials takes the keys from the environment, as in use.
func TestEnvironmentCredentials(t *testing.T) {
	srv := blobtest.Versitygw(t)
	t.Setenv("AWS_ACCESS_KEY_ID", srv.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", srv.SecretKey)
	s := open(t, srv.MinioURL, minio.Options{})
	if err := s.Put(t.Context(), "k", []byte("v")); err != nil {
		t.Error(err)
	}
}

// TestOutage stops the server under a store and brings it back.
func TestOutage(t *testing.T) {
	srv, err := blobtest.StartVersitygw(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := open(t, srv.MinioURL, keys(srv))
	if err := s.Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}
	blobtest.Refusals(t, s, blobs.ErrUnavailable)
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "k", 0, -1)
	if err != nil || string(got) != "v" {
		t.Errorf("after the outage: %q, %v", got, err)
	}
}

// TestClockSkew reads the clock of a server on this very machine.
func TestClockSkew(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			srv := server(t)
			skew, err := blobs.ClockSkew(t.Context(), retry.New(open(t, srv.MinioURL, keys(srv)), retry.Options{}))
			if err != nil || skew.Abs() > 2*time.Second {
				t.Errorf("skew %v, %v", skew, err)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	blobtest.Answers(t, func(t *testing.T, address string) blobs.Store {
		return open(t, "minio://"+address+"/wsfs-fake?tls=false", minio.Options{AccessKey: "a", SecretKey: "s"})
	})
}

package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/blobtest"
	"wsfs/blobs/retry"
	"wsfs/blobs/s3"
	"wsfs/blobs/s3/wire"
)

// servers are the real ones; each call gives a fresh bucket.
var servers = map[string]func(testing.TB) *blobtest.Server{"versitygw": blobtest.Versitygw, "rclone": blobtest.Rclone}

func open(t *testing.T, url string, o s3.Options) *s3.Store {
	t.Helper()
	loc, err := blobs.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), loc, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keys(s *blobtest.Server) s3.Options {
	return s3.Options{AccessKey: s.AccessKey, SecretKey: s.SecretKey}
}

// TestContractVersitygw runs the suite on the bare driver, in a bucket of its own.
func TestContractVersitygw(t *testing.T) {
	blobtest.Versitygw(t) // keeps the server up between the subtests
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		srv := blobtest.Versitygw(t)
		return open(t, srv.URL, keys(srv))
	})
}

// TestContractRclone runs the suite below a prefix of a bucket that also holds foreign objects, which must stay out of
// sight. The driver is under package retry: this server answers 500 now and then when requests meet in one directory.
func TestContractRclone(t *testing.T) {
	blobtest.Rclone(t)
	blobtest.Run(t, func(t *testing.T) blobs.Store {
		srv := blobtest.Rclone(t)
		whole := retry.New(open(t, srv.URL, keys(srv)), retry.Options{})
		for _, key := range []string{"a", "pre-fix/x", "pre/fix-/x", "pre/fi", "pre/fiy", "zz"} {
			if err := whole.Put(t.Context(), key, []byte("foreign")); err != nil {
				t.Fatal(err)
			}
		}
		return retry.New(open(t, srv.In(srv.Bucket+"/pre/fix").URL, keys(srv)), retry.Options{})
	}, blobtest.TornOverwrite)
}

// TestMultipart puts bodies above the limit of one piece, conditionally and not.
func TestMultipart(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			srv := server(t)
			s := open(t, srv.URL, keys(srv))
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
				blobtest.Refusals(t, open(t, srv.In("wsfs-no-such-bucket").URL, keys(srv)), blobs.ErrNoStore)
			})
			t.Run("wrong secret", func(t *testing.T) {
				blobtest.Refusals(t, open(t, srv.URL, s3.Options{AccessKey: srv.AccessKey, SecretKey: "wrong"}), blobs.ErrDenied)
			})
			t.Run("unknown key", func(t *testing.T) {
				blobtest.Refusals(t, open(t, srv.URL, s3.Options{AccessKey: "nobody", SecretKey: srv.SecretKey}), blobs.ErrDenied)
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
	s := open(t, srv.URL, s3.Options{})
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
	s := open(t, srv.URL, s3.Options{})
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
	s := open(t, srv.URL, keys(srv))
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
			skew, err := blobs.ClockSkew(t.Context(), retry.New(open(t, srv.URL, keys(srv)), retry.Options{}))
			if err != nil || skew.Abs() > 2*time.Second {
				t.Errorf("skew %v, %v", skew, err)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	blobtest.Answers(t, func(t *testing.T, address string) blobs.Store {
		return open(t, "s3://wsfs-fake?endpoint=http://"+address, s3.Options{AccessKey: "a", SecretKey: "s"})
	})
}

// TestSkewIsCorrected has a server an hour ahead that accepts what is signed by its own clock: the caller sees nothing.
func TestSkewIsCorrected(t *testing.T) {
	var refused, accepted atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().Add(time.Hour)
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || now.Sub(signed).Abs() > 15*time.Minute {
			refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error>`)
			return
		}
		accepted.Add(1)
	}))
	defer srv.Close()
	s := open(t, "s3://wsfs-fake?endpoint="+srv.URL, s3.Options{AccessKey: "a", SecretKey: "s"})
	for range 3 {
		if err := s.PutIfAbsent(t.Context(), "k", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if refused.Load() != 1 || accepted.Load() != 3 {
		t.Errorf("%d requests refused and %d accepted, want 1 and 3", refused.Load(), accepted.Load())
	}
}

// TestR2 checks what an R2 URL makes of the requests, without R2: host, path style, region and no checksum headers.
func TestR2(t *testing.T) {
	const account = "0123456789abcdef0123456789abcdef"
	var got *http.Request
	s := open(t, "r2://"+account+"/bucket/pre?jurisdiction=eu", s3.Options{
		AccessKey: "a", SecretKey: "s", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}),
	})
	if err := s.PutIfAbsent(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if want := "https://" + account + ".eu.r2.cloudflarestorage.com/bucket/pre/k"; got.URL.Scheme+"://"+got.URL.Host+got.URL.Path != want {
		t.Errorf("request to %s, want %s", got.URL, want)
	}
	if auth := got.Header.Get("Authorization"); !strings.Contains(auth, "/auto/s3/aws4_request") {
		t.Errorf("signed as %s, want region auto", auth)
	}
	for name := range got.Header {
		if strings.Contains(strings.ToLower(name), "checksum") {
			t.Errorf("the request carries %s", name)
		}
	}
	if got.Header.Get("If-None-Match") != "*" {
		t.Errorf("If-None-Match is %q", got.Header.Get("If-None-Match"))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNoRegion wants a clear word instead of a request to nowhere.
func TestNoRegion(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	loc, err := blobs.ParseURL("s3://bucket")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s3.Open(t.Context(), loc, s3.Options{}); err == nil || !strings.Contains(err.Error(), "no region") {
		t.Errorf("open of an AWS bucket without a region: %v", err)
	}
}

// TestTemporaryCredentials must not hand out links that outlive what signed them. The keys come from a process named in
// the shared configuration, as for a role.
func TestTemporaryCredentials(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(home, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	process := write("keys", fmt.Sprintf("#!/bin/sh\necho '%s'\n", fmt.Sprintf(
		`{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s","SessionToken":"tok","Expiration":"%s"}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))), 0o700)
	t.Setenv("AWS_CONFIG_FILE", write("config", "[default]\ncredential_process = "+process+"\n", 0o600))
	s := open(t, "s3://wsfs-fake?endpoint=http://127.0.0.1:1", s3.Options{})
	_, err := s.Presign(t.Context(), "k", 2*time.Hour, blobs.PresignOptions{})
	if !errors.Is(err, blobs.ErrUnsupported) || !strings.Contains(err.Error(), "expire in") {
		t.Errorf("a link of 2 h by credentials of 1 h: %v", err)
	}
	u, err := s.Presign(t.Context(), "k", 30*time.Minute, blobs.PresignOptions{})
	if err != nil || u.Query().Get("X-Amz-Expires") != "1800" || u.Query().Get("X-Amz-Security-Token") != "tok" {
		t.Errorf("a link of 30 min: %v, %v", u, err)
	}
}

package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"wsfs/blobs"
)

// answer is what a server says to every request, and what the driver must make of it. Real servers give these answers
// only on their bad days.
type answer struct {
	status int
	code   string
	want   error // nil: an error that matches no sentinel
}

var answers = []answer{
	{409, "ConditionalRequestConflict", blobs.ErrUnavailable},
	{409, "OperationAborted", blobs.ErrUnavailable},
	{429, "TooManyRequests", blobs.ErrUnavailable},
	{429, "", blobs.ErrUnavailable},
	{500, "InternalError", blobs.ErrUnavailable},
	{502, "", blobs.ErrUnavailable},
	{503, "SlowDown", blobs.ErrUnavailable},
	{503, "ServiceUnavailable", blobs.ErrUnavailable},
	{504, "", blobs.ErrUnavailable},
	{400, "RequestTimeout", blobs.ErrUnavailable},
	{403, "AccessDenied", blobs.ErrDenied},
	{403, "", blobs.ErrDenied},
	{403, "InvalidAccessKeyId", blobs.ErrDenied},
	{403, "SignatureDoesNotMatch", blobs.ErrDenied},
	{400, "ExpiredToken", blobs.ErrDenied},
	{400, "InvalidToken", blobs.ErrDenied},
	{401, "Unauthorized", blobs.ErrDenied},
	{403, "RequestTimeTooSkewed", blobs.ErrClockSkew},
	{404, "NoSuchBucket", blobs.ErrNoStore},
	{400, "KeyTooLongError", nil},
	{301, "PermanentRedirect", nil},
}

// Answers runs the store that open makes for an endpoint ("127.0.0.1:port", plain HTTP, bucket "wsfs-fake") against a
// server of canned answers. The driver must map each, and ask once: repeating is not its business.
func Answers(t *testing.T, open func(t *testing.T, address string) blobs.Store) {
	for _, a := range answers {
		t.Run(fmt.Sprintf("%d %s", a.status, a.code), func(t *testing.T) {
			var requests atomic.Int64
			s := open(t, canned(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				refuse(w, a.status, a.code, time.Now())
			}))
			for op, err := range everyOp(t.Context(), s) {
				requests.Store(0)
				err := err()
				if err == nil {
					t.Errorf("%s: no error", op)
				} else {
					wantSentinel(t, op, err, a.want)
				}
				// A driver may sign once more by the store's clock.
				if n := requests.Load(); n != 1 && (n != 2 || a.want != blobs.ErrClockSkew) {
					t.Errorf("%s made %d requests, want 1", op, n)
				}
			}
		})
	}
	t.Run("conditions refused", func(t *testing.T) { testConditionsRefused(t, open) })
	t.Run("skew", func(t *testing.T) { testSkew(t, open) })
	t.Run("lost reply", func(t *testing.T) { testLostReply(t, open) })
	t.Run("short body", func(t *testing.T) { testShortBody(t, open) })
}

func everyOp(ctx context.Context, s blobs.Store) map[string]func() error {
	return map[string]func() error{
		"get":           func() error { _, err := s.Get(ctx, "k", 0, -1); return err },
		"put":           func() error { return s.Put(ctx, "k", []byte("x")) },
		"put if absent": func() error { return s.PutIfAbsent(ctx, "k", []byte("x")) },
		"delete":        func() error { return s.Delete(ctx, "k") },
		"list":          func() error { _, err := s.List(ctx, "", "", 0); return err },
	}
}

func wantSentinel(t *testing.T, op string, err, target error) {
	t.Helper()
	if target != nil {
		want(t, op, err, target)
		return
	}
	for _, s := range []error{blobs.ErrNotExist, blobs.ErrExist, blobs.ErrNoStore, blobs.ErrDenied, blobs.ErrUnavailable, blobs.ErrClockSkew} {
		if errors.Is(err, s) {
			t.Errorf("%s: error %v matches %v, want none", op, err, s)
		}
	}
}

func canned(t *testing.T, h http.HandlerFunc) (address string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Logf("canned server: %v", err)
		}
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// refuse writes S3's error document, or nothing where there is no code, dated now.
func refuse(w http.ResponseWriter, status int, code string, now time.Time) {
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	w.Header().Set("X-Amz-Request-Id", "R1")
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if code != "" {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>canned</Message><RequestId>R1</RequestId></Error>`, code)
	}
}

// testConditionsRefused has servers that do not know If-None-Match and say so.
func testConditionsRefused(t *testing.T, open func(*testing.T, string) blobs.Store) {
	for _, a := range []answer{{501, "NotImplemented", nil}, {501, "", nil}, {400, "InvalidArgument", nil}, {400, "InvalidRequest", nil}} {
		s := open(t, canned(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "*" {
				refuse(w, a.status, a.code, time.Now())
			}
		}))
		want(t, fmt.Sprintf("%d %s", a.status, a.code), s.PutIfAbsent(t.Context(), "k", []byte("x")), blobs.ErrUnsupported)
		if err := s.Put(t.Context(), "k", []byte("x")); err != nil {
			t.Errorf("a put without a condition: %v", err)
		}
	}
}

// testSkew has a server whose clock is an hour ahead. The error says so, and ClockSkew too.
func testSkew(t *testing.T, open func(*testing.T, string) blobs.Store) {
	s := open(t, canned(t, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, 403, "RequestTimeTooSkewed", time.Now().Add(time.Hour))
	}))
	err := s.Put(t.Context(), "k", []byte("x"))
	want(t, "put", err, blobs.ErrClockSkew)
	if err != nil && !strings.Contains(err.Error(), "1h0m") && !strings.Contains(err.Error(), "59m59s") {
		t.Errorf("the error does not say that an hour is missing: %v", err)
	}
	skew, err := blobs.ClockSkew(t.Context(), s)
	must(t, err)
	if diff := skew - time.Hour; diff.Abs() > 2*time.Second {
		t.Errorf("ClockSkew says %v, want 1h", skew)
	}
}

// testLostReply has a server that does the work and hangs up, and one that nobody listens for.
func testLostReply(t *testing.T, open func(*testing.T, string) blobs.Store) {
	s := open(t, canned(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }))
	free, err := freeAddress()
	must(t, err)
	for name, s := range map[string]blobs.Store{"hung up": s, "nobody": open(t, free), "no name": open(t, "no-such-host.invalid:80")} {
		for op, err := range everyOp(t.Context(), s) {
			want(t, name+": "+op, err(), blobs.ErrUnavailable)
		}
	}
}

// testShortBody has a server that breaks off in the middle of a body.
func testShortBody(t *testing.T, open func(*testing.T, string) blobs.Store) {
	s := open(t, canned(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("Etag", `"x"`)
		fmt.Fprint(w, "only this")
	}))
	body, err := s.Get(t.Context(), "k", 0, -1)
	want(t, "get of a body that breaks off", err, blobs.ErrUnavailable)
	if body != nil {
		t.Errorf("and it returned %d bytes", len(body))
	}
}

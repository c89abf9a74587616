package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"wsfs/blobs"
)

func TestRange(t *testing.T) {
	for _, c := range []struct {
		offset, length int64
		want           string
	}{
		{0, -1, ""}, {0, -9, ""}, {5, -1, "bytes=5-"}, {0, 1, "bytes=0-0"}, {0, 0, "bytes=0-0"}, {7, 0, "bytes=7-7"}, {10, 20, "bytes=10-29"},
		{1, 1<<63 - 1, "bytes=1-"}, {1<<63 - 1, 1, "bytes=9223372036854775807-"}, {1<<63 - 1, 0, "bytes=9223372036854775807-"},
	} {
		if got := Range(c.offset, c.length); got != c.want {
			t.Errorf("Range(%d, %d) = %q, want %q", c.offset, c.length, got, c.want)
		}
	}
}

func TestReadBody(t *testing.T) {
	for _, size := range []int64{5, -1} {
		if got, err := ReadBody(strings.NewReader("01234"), size); err != nil || string(got) != "01234" {
			t.Errorf("size %d: %q, %v", size, got, err)
		}
	}
	for _, body := range []string{"", "0123"} {
		if _, err := ReadBody(strings.NewReader(body), 5); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q for 5 bytes: %v", body, err)
		}
	}
	if got, err := ReadBody(strings.NewReader(""), 0); err != nil || len(got) != 0 {
		t.Errorf("an empty body: %q, %v", got, err)
	}
}

func TestWrap(t *testing.T) {
	inner := errors.New("sdk")
	clock := &Clock{}
	if err := (Fault{Err: inner}).Wrap(t.Context(), "get k", clock); !errors.Is(err, blobs.ErrUnavailable) || !errors.Is(err, inner) {
		t.Errorf("no answer: %v", err)
	}
	err := (Fault{Code: "PermanentRedirect", Status: 301, Region: "eu-west-1", Err: inner}).Wrap(t.Context(), "get k", clock)
	if errors.Is(err, blobs.ErrUnavailable) || !strings.Contains(err.Error(), "?region=eu-west-1") {
		t.Errorf("another region: %v", err)
	}
	if err := (Fault{Status: 404, Err: inner}).Wrap(t.Context(), "get k", clock); errors.Is(err, blobs.ErrNotExist) {
		t.Errorf("a bare 404 became %v", err)
	}
	if err := (Fault{Code: "NoSuchKey", Status: 404, Err: inner}).Wrap(t.Context(), "get k", clock); !errors.Is(err, blobs.ErrNotExist) {
		t.Errorf("no such key: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Fault{Err: inner}).Wrap(ctx, "get k", clock); !errors.Is(err, context.Canceled) || errors.Is(err, blobs.ErrUnavailable) {
		t.Errorf("the caller's end: %v", err)
	}
	for date, text := range map[string]string{"": "does not say", "ahead": "2h0m0s behind", "behind": "2h0m0s ahead"} {
		now, clock := time.Now().Truncate(time.Second), &Clock{}
		switch date {
		case "ahead":
			clock.record(now.Add(2*time.Hour).UTC().Format(http.TimeFormat), now, now.Add(time.Second))
		case "behind":
			clock.record(now.Add(-2*time.Hour).UTC().Format(http.TimeFormat), now, now.Add(time.Second))
		}
		err := (Fault{Code: "RequestTimeTooSkewed", Status: 403, Err: inner}).Wrap(t.Context(), "put k", clock)
		if !errors.Is(err, blobs.ErrClockSkew) || !strings.Contains(err.Error(), text) {
			t.Errorf("store %s: %v, want one that says %q", date, err, text)
		}
	}
}

func TestCollect(t *testing.T) {
	pages := func(pages ...string) func() ([]blobs.Object, bool, error) {
		return func() ([]blobs.Object, bool, error) {
			var page []blobs.Object
			for _, k := range strings.Fields(pages[0]) {
				page = append(page, blobs.Object{Key: k})
			}
			pages = pages[1:]
			return page, len(pages) > 0, nil
		}
	}
	for name, c := range map[string]struct {
		limit               int
		root, prefix, after string
		pages               []string
		want, errorSays     string
	}{
		"one page":         {3, "", "", "", []string{"a b"}, "a b", ""},
		"joins pages":      {4, "", "", "", []string{"a b", "", "c", "d e"}, "a b c d", ""},
		"cuts":             {2, "", "", "", []string{"a b c"}, "a b", ""},
		"root":             {9, "r/", "", "", []string{"q r/a r/b r0/c"}, "a b", ""},
		"prefix and after": {9, "r/", "p", "pb", []string{"r/pa r/pb r/pc r/q"}, "pc", ""},
		"foreign":          {9, "", "", "", []string{"a/ b//c d~ e"}, "e", ""},
		"no order":         {9, "", "", "", []string{"b a"}, "", `"a" after "b"`},
		"repeats":          {9, "", "", "", []string{"a b", "b c"}, "", `"b" after "b"`},
	} {
		got, err := Collect(c.limit, c.root, c.prefix, c.after, pages(c.pages...))
		var keys []string
		for _, o := range got {
			keys = append(keys, o.Key)
		}
		if strings.Join(keys, " ") != c.want || (err != nil) != (c.errorSays != "") || err != nil && !strings.Contains(err.Error(), c.errorSays) {
			t.Errorf("%s: %q, %v; want %q, %q", name, keys, err, c.want, c.errorSays)
		}
	}
	broken := errors.New("broken")
	if _, err := Collect(1, "", "", "", func() ([]blobs.Object, bool, error) { return nil, false, broken }); !errors.Is(err, broken) {
		t.Errorf("a page that fails: %v", err)
	}
}

// TestStalling wants a silent connection to die, and one with slow traffic in either direction to live.
func TestStalling(t *testing.T) {
	const limit = 300 * time.Millisecond
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := &stalling{Conn: ours, limit: limit}
	defer c.Close()
	go func() { // reads slowly, answers at the end, then says nothing
		for range 6 {
			time.Sleep(limit / 3)
			if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
				return
			}
		}
		theirs.Write([]byte("!")) // the reader below checks it
	}()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		answer <- err
	}()
	for range 6 { // takes twice the limit as a whole
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatalf("a slow upload died: %v", err)
		}
	}
	if err := <-answer; err != nil {
		t.Fatalf("the read that waits for the answer of a slow upload died: %v", err)
	}
	began := time.Now()
	if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(began) > 20*limit {
		t.Errorf("a silent connection: %v after %v", err, time.Since(began))
	}
}

func TestTransportTellsTheClock(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer srv.Close()
	client := &http.Client{Transport: NewTransport()}
	defer client.CloseIdleConnections()
	ctx, clock := WithClock(t.Context())
	if _, seen := clock.Skew(); seen {
		t.Error("a clock before any answer")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if skew, seen := clock.Skew(); !seen || (skew+time.Hour).Abs() > 2*time.Second {
		t.Errorf("skew %v, %v", skew, seen)
	}
}

package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
)

func testCancelled(t *testing.T, s blobs.Store) {
	must(t, s.Put(t.Context(), "there", []byte("x")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "there", 0, -1)
	_, listErr := s.List(ctx, "", "", 0)
	for op, err := range map[string]error{
		"get": getErr, "list": listErr, "put": s.Put(ctx, "new1", []byte("x")),
		"put if absent": s.PutIfAbsent(ctx, "new2", []byte("x")), "delete": s.Delete(ctx, "there"),
	} {
		want(t, op+" with an ended context", err, context.Canceled)
	}
	page, err := s.List(t.Context(), "", "", 0)
	must(t, err)
	if len(page) != 1 || page[0].Key != "there" {
		t.Errorf("calls with an ended context left %v", page)
	}
}

// testCancelPut ends the context at some point within puts of 16 MiB. Afterwards there is the whole body or what was
// there before, never anything else.
func testCancelPut(t *testing.T, s blobs.Store) {
	rng := Seed(t)
	body, old := Body(16<<20), Body(1000)
	cut := 0
	for i := range 10 {
		key := fmt.Sprintf("cancel/%d", i)
		put, before := s.PutIfAbsent, []byte(nil)
		if i%2 == 1 {
			put, before = s.Put, old
			must(t, s.Put(t.Context(), key, old))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond<<rng.IntN(8))
		err := put(ctx, key, body)
		cancel()
		if err != nil {
			cut++
			want(t, "put cut short", err, context.DeadlineExceeded)
		}
		got, getErr := s.Get(t.Context(), key, 0, -1)
		switch {
		case getErr == nil && bytes.Equal(got, body):
		case err == nil:
			t.Errorf("a put that succeeded is not there: %d bytes, %v", len(got), getErr)
		case getErr == nil && before != nil && bytes.Equal(got, before):
		case errors.Is(getErr, blobs.ErrNotExist) && before == nil:
		default:
			t.Errorf("a put cut short (%v) left %d bytes, %v", err, len(got), getErr)
		}
	}
	if cut == 0 {
		t.Log("no put was cut short: the store is faster than the deadlines")
	}
	page, err := s.List(t.Context(), "", "", 0)
	must(t, err)
	for _, o := range page {
		if !strings.HasPrefix(o.Key, "cancel/") || o.Size != int64(len(body)) && o.Size != int64(len(old)) {
			t.Errorf("puts cut short left %v", o)
		}
	}
}

// testConcurrent has 16 workers that use keys of their own and one key that all replace.
func testConcurrent(t *testing.T, s blobs.Store, torn bool) {
	const workers, rounds = 16, 12
	shared := make(map[string]bool) // bodies that the common key may have
	bodies := make([][][]byte, workers)
	for w := range bodies {
		for range rounds {
			body := Body(3000)
			bodies[w] = append(bodies[w], body)
			shared[string(body)] = true
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r, body := range bodies[w] {
				if err := concurrentRound(t.Context(), s, fmt.Sprintf("own/%02d/%02d", w, r), body, shared, torn); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	page, err := s.List(t.Context(), "own/", "", 0)
	must(t, err)
	if len(page) != workers*rounds/2 {
		t.Errorf("%d objects are left, want %d", len(page), workers*rounds/2)
	}
}

func concurrentRound(ctx context.Context, s blobs.Store, key string, body []byte, shared map[string]bool, torn bool) error {
	if err := s.PutIfAbsent(ctx, key, body); err != nil {
		return err
	}
	if err := s.Put(ctx, "common", body); err != nil {
		return err
	}
	got, err := s.Get(ctx, key, 100, 900)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, body[100:1000]) {
		return fmt.Errorf("get %s: wrong bytes", key)
	}
	common, err := s.Get(ctx, "common", 0, -1)
	if err != nil && !torn {
		return err
	}
	if !shared[string(common)] && !torn {
		return fmt.Errorf("the common key has %d bytes that nobody put", len(common))
	}
	page, err := s.List(ctx, key, "", 1)
	if err != nil {
		return err
	}
	if len(page) != 1 || page[0].Key != key {
		return fmt.Errorf("list %s after its put: %v", key, page)
	}
	if key[len(key)-1]%2 == 0 {
		return s.Delete(ctx, key)
	}
	return nil
}

// testWhole reads a key while its object is being put: nothing, what was there before or the whole body.
func testWhole(t *testing.T, s blobs.Store, torn bool) {
	old, body := Body(1<<20), Body(3<<20)
	for i, put := range []func(context.Context, string, []byte) error{s.PutIfAbsent, s.Put, s.Put, s.PutIfAbsent, s.Put, s.Put} {
		key := fmt.Sprintf("whole/%d", i)
		replaces := i%3 == 2
		if replaces && torn {
			continue
		}
		if replaces {
			must(t, s.Put(t.Context(), key, old))
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for running := true; running; {
					select {
					case <-done:
						running = false // one more read, which must see the body
					default:
					}
					got, err := s.Get(t.Context(), key, 0, -1)
					switch {
					case err == nil && (bytes.Equal(got, body) || running && replaces && bytes.Equal(got, old)):
					case errors.Is(err, blobs.ErrNotExist) && running && !replaces:
					default:
						t.Errorf("read during put %d (still running: %v): %d bytes, %v", i, running, len(got), err)
						running = false
					}
				}
			})
		}
		err := put(t.Context(), key, body)
		close(done)
		wg.Wait()
		must(t, err)
	}
}

// testPresign fetches a link with plain net/http, as a browser would. A store without links must say so.
func testPresign(t *testing.T, s blobs.Store) {
	ctx := t.Context()
	body := Body(5000)
	must(t, s.Put(ctx, "artifacts/1/a-b.txt", body))
	opts := blobs.PresignOptions{ContentType: "text/x-wsfs", ContentDisposition: `attachment; filename="my file.txt"`}
	u, err := s.Presign(ctx, "artifacts/1/a-b.txt", time.Minute, opts)
	if errors.Is(err, blobs.ErrUnsupported) {
		return
	}
	must(t, err)
	status, header, got := fetch(t, u.String(), "")
	if status != http.StatusOK || !bytes.Equal(got, body) {
		t.Errorf("fetch of the link: status %d, %d bytes", status, len(got))
	}
	if header.Get("Content-Type") != opts.ContentType || header.Get("Content-Disposition") != opts.ContentDisposition {
		t.Errorf("the link answers with %q and %q", header.Get("Content-Type"), header.Get("Content-Disposition"))
	}
	if status, _, got = fetch(t, u.String(), "bytes=10-19"); status != http.StatusPartialContent || !bytes.Equal(got, body[10:20]) {
		t.Errorf("fetch of a range of the link: status %d, %d bytes", status, len(got))
	}
	bad := strings.Replace(u.String(), "a-b.txt", "a-c.txt", 1)
	if status, _, _ = fetch(t, bad, ""); status != http.StatusForbidden {
		t.Errorf("fetch of a link with another key: status %d, want 403", status)
	}
	for _, expires := range []time.Duration{0, -time.Second, time.Millisecond, 7*24*time.Hour + time.Second} {
		if _, err := s.Presign(ctx, "artifacts/1/a-b.txt", expires, opts); err == nil {
			t.Errorf("presign for %v gave no error", expires)
		}
	}
	if _, err := s.Presign(ctx, "no//key", time.Minute, opts); err == nil {
		t.Error("presign of a bad key gave no error")
	}
	short, err := s.Presign(ctx, "artifacts/1/a-b.txt", time.Second, blobs.PresignOptions{})
	must(t, err)
	time.Sleep(2500 * time.Millisecond)
	if status, _, _ = fetch(t, short.String(), ""); status != http.StatusForbidden {
		t.Errorf("fetch of an expired link: status %d, want 403", status)
	}
}

func fetch(t *testing.T, link, byteRange string) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	must(t, err)
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header, body
}

// PutTwice puts body (which may be too large for one request) conditionally and again, and unconditionally twice. A
// put that failed must leave neither an object nor parts that List shows.
func PutTwice(t *testing.T, s blobs.Store, body []byte) {
	t.Helper()
	must(t, s.PutIfAbsent(t.Context(), "large/absent", body))
	wantBody(t, s, "large/absent", body)
	other := bytes.Clone(body)
	other[0]++
	want(t, "put if absent of a large body", s.PutIfAbsent(t.Context(), "large/absent", other), blobs.ErrExist)
	wantBody(t, s, "large/absent", body)
	must(t, s.Put(t.Context(), "large/absent", other))
	wantBody(t, s, "large/absent", other)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := s.Put(ctx, "large/cut", body); err == nil {
		t.Error("a put of a large body took less than 30 ms")
	} else {
		want(t, "large put cut short", err, context.DeadlineExceeded)
	}
	page, err := s.List(t.Context(), "", "", 0)
	must(t, err)
	if len(page) != 1 || page[0].Key != "large/absent" || page[0].Size != int64(len(body)) {
		t.Errorf("large puts left %v", page)
	}
}

// Refusals checks what a store that cannot work says: every operation must fail and match want. A missing bucket is
// blobs.ErrNoStore, wrong keys are blobs.ErrDenied, a server that is gone is blobs.ErrUnavailable.
func Refusals(t *testing.T, s blobs.Store, target error) {
	t.Helper()
	ctx := t.Context()
	_, getErr := s.Get(ctx, "some/key", 0, -1)
	_, rangeErr := s.Get(ctx, "some/key", 3, 4)
	_, listErr := s.List(ctx, "some/", "", 0)
	want(t, "get", getErr, target)
	want(t, "get of a range", rangeErr, target)
	want(t, "list", listErr, target)
	want(t, "put", s.Put(ctx, "some/key", []byte("x")), target)
	want(t, "put if absent", s.PutIfAbsent(ctx, "some/key", []byte("x")), target)
	want(t, "delete", s.Delete(ctx, "some/key"), target)
}

package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"wsfs/blobs"
)

// Exemption is a clause that a store is known to keep only in part. docs/stores.md says which and what follows.
type Exemption int

const (
	// TornOverwrite: a Get of a key that is being replaced may answer wrong. (Keys put once must still be read whole.)
	TornOverwrite Exemption = 1 + iota
	// EqualIsOurs: PutIfAbsent of a body equal to the one that is there may succeed. So it is above a store that loses
	// replies, where equal is taken for one's own.
	EqualIsOurs
)

// Run checks every clause of the contract on stores that open returns, but for the exempted ones. Each call of open
// must give an empty store that only the given test uses.
func Run(t *testing.T, open func(t *testing.T) blobs.Store, exempt ...Exemption) {
	torn := slices.Contains(exempt, TornOverwrite)
	for _, c := range []struct {
		name string
		run  func(*testing.T, blobs.Store)
	}{
		{"Missing", testMissing},
		{"RoundTrip", testRoundTrip},
		{"Ranges", testRanges},
		{"Overwrite", testOverwrite},
		{"PutIfAbsent", func(t *testing.T, s blobs.Store) { testPutIfAbsent(t, s, slices.Contains(exempt, EqualIsOurs)) }},
		{"Race", testRace},
		{"ListOrder", testListOrder},
		{"ListPages", testListPages},
		{"LongKeys", testLongKeys},
		{"BadKeys", testBadKeys},
		{"Cancelled", testCancelled},
		{"CancelPut", testCancelPut},
		{"Concurrent", func(t *testing.T, s blobs.Store) { testConcurrent(t, s, torn) }},
		{"Whole", func(t *testing.T, s blobs.Store) { testWhole(t, s, torn) }},
		{"Presign", testPresign},
		{"URL", testURL},
		{"Probe", testProbe},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// Seed returns a generator and prints its seed, so that a failure can be run again.
func Seed(t testing.TB) *mrand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return mrand.New(mrand.NewPCG(seed, seed))
}

// Body returns n random bytes.
func Body(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails unless err matches target, and no other sentinel that would send a caller astray.
func want(t testing.TB, doing string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", doing, err, target)
	}
	for _, other := range []error{
		blobs.ErrNotExist, blobs.ErrExist, blobs.ErrNoStore, blobs.ErrDenied, blobs.ErrUnavailable, blobs.ErrClockSkew, blobs.ErrUnsupported,
	} {
		if other != target && errors.Is(err, other) {
			t.Errorf("%s: error %v also matches %v", doing, err, other)
		}
	}
}

// wantBody fails unless key holds exactly body.
func wantBody(t testing.TB, s blobs.Store, key string, body []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key, 0, -1)
	must(t, err)
	if !bytes.Equal(got, body) {
		t.Errorf("get %s: got %d bytes that differ from the %d put", key, len(got), len(body))
	}
}

func testMissing(t *testing.T, s blobs.Store) {
	ctx := t.Context()
	for _, key := range []string{"absent", "no/such/key"} {
		for _, r := range [][2]int64{{0, -1}, {0, 0}, {0, 5}, {7, 5}} {
			_, err := s.Get(ctx, key, r[0], r[1])
			want(t, fmt.Sprintf("get %s %v", key, r), err, blobs.ErrNotExist)
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v does not match fs.ErrNotExist", err)
			}
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("delete of a missing key: %v", err)
		}
	}
	page, err := s.List(ctx, "", "", 0)
	if err != nil || len(page) != 0 {
		t.Errorf("list of an empty store: %v, %v", page, err)
	}
	if page, err = s.List(ctx, "no/such/", "", 5); err != nil || len(page) != 0 {
		t.Errorf("list below a missing prefix: %v, %v", page, err)
	}
	// A key below which others lie is itself no object.
	must(t, s.Put(ctx, "up/down", []byte("x")))
	_, err = s.Get(ctx, "up", 0, -1)
	want(t, "get of a prefix", err, blobs.ErrNotExist)
}

func testRoundTrip(t *testing.T, s blobs.Store) {
	for _, size := range []int{0, 1, 1000, 64<<10 + 1, 5 << 20, 16 << 20} {
		for op, put := range map[string]func(context.Context, string, []byte) error{"put": s.Put, "absent": s.PutIfAbsent} {
			key := fmt.Sprintf("packs/%s/%d", op, size)
			body := Body(size)
			kept := bytes.Clone(body)
			must(t, put(t.Context(), key, body))
			if !bytes.Equal(body, kept) {
				t.Errorf("%s of %d bytes changed the caller's body", op, size)
			}
			clear(body) // the store may not have kept the caller's slice
			wantBody(t, s, key, kept)
			got, err := s.Get(t.Context(), key, 0, -1)
			must(t, err)
			clear(got) // nor have handed out its own
			wantBody(t, s, key, kept)
		}
	}
}

func testRanges(t *testing.T, s blobs.Store) {
	for _, size := range []int64{0, 1, 1000} {
		key := fmt.Sprintf("ranges/%d", size)
		body := Body(int(size))
		must(t, s.Put(t.Context(), key, body))
		for _, offset := range []int64{0, 1, 499, 999, 1000, 1001, 1 << 40, math.MaxInt64} {
			for _, length := range []int64{-1, -5, 0, 1, 500, 999, 1000, 1001, 1 << 40, math.MaxInt64} {
				wantRange := body[min(offset, size):]
				if length >= 0 && length < int64(len(wantRange)) {
					wantRange = wantRange[:length]
				}
				got, err := s.Get(t.Context(), key, offset, length)
				if err != nil || !bytes.Equal(got, wantRange) {
					t.Errorf("get of %d bytes, offset %d, length %d: got %d bytes, %v; want %d", size, offset, length, len(got), err, len(wantRange))
				}
			}
		}
		if got, err := s.Get(t.Context(), key, -1, 5); err == nil {
			t.Errorf("get with a negative offset gave %d bytes and no error", len(got))
		}
	}
}

func testOverwrite(t *testing.T, s blobs.Store) {
	for _, size := range []int{100, 7, 0, 300_000, 1} {
		body := Body(size)
		must(t, s.Put(t.Context(), "over/written", body))
		wantBody(t, s, "over/written", body)
	}
	must(t, s.Delete(t.Context(), "over/written"))
	_, err := s.Get(t.Context(), "over/written", 0, -1)
	want(t, "get after delete", err, blobs.ErrNotExist)
	must(t, s.Delete(t.Context(), "over/written"))
	must(t, s.Put(t.Context(), "over/written", []byte("again")))
	wantBody(t, s, "over/written", []byte("again"))
}

func testPutIfAbsent(t *testing.T, s blobs.Store, equalIsOurs bool) {
	ctx := t.Context()
	for _, first := range [][]byte{[]byte("first"), {}} {
		key := fmt.Sprintf("absent/%d", len(first))
		must(t, s.PutIfAbsent(ctx, key, first))
		for _, body := range [][]byte{[]byte("second"), first, {}} {
			if err := s.PutIfAbsent(ctx, key, body); err != nil || !equalIsOurs || !bytes.Equal(body, first) {
				want(t, "put if absent of a key that exists", err, blobs.ErrExist)
			}
			wantBody(t, s, key, first)
		}
		must(t, s.Put(ctx, key, []byte("replaced")))
		want(t, "put if absent after a put", s.PutIfAbsent(ctx, key, first), blobs.ErrExist)
		wantBody(t, s, key, []byte("replaced"))
		must(t, s.Delete(ctx, key))
		must(t, s.PutIfAbsent(ctx, key, []byte("third")))
		wantBody(t, s, key, []byte("third"))
	}
}

// testRace lets 16 writers want one key, over and over, with bodies small and large.
func testRace(t *testing.T, s blobs.Store) {
	const writers = 16
	for round, size := range []int{10, 10, 10, 64 << 10, 64 << 10, 1 << 20} {
		key := fmt.Sprintf("race/%d", round)
		bodies, errs := make([][]byte, writers), make([]error, writers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range writers {
			bodies[i] = Body(size)
			wg.Go(func() {
				<-start
				errs[i] = s.PutIfAbsent(t.Context(), key, bodies[i])
			})
		}
		close(start)
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("round %d: writers %d and %d both succeeded", round, winner, i)
			case errors.Is(err, blobs.ErrUnavailable):
				// 409 of a store that would not decide now: allowed, and not a success.
			default:
				want(t, fmt.Sprintf("round %d: writer %d", round, i), err, blobs.ErrExist)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody succeeded: %v", round, errs)
		}
		wantBody(t, s, key, bodies[winner])
	}
}

// longest is a valid key of the greatest length: three components of 200 bytes, one of 97, and three slashes.
func longest() string {
	part := strings.Repeat("k", blobs.MaxComponent)
	key := strings.Join([]string{part, part, part, part}, "/")
	return key[:blobs.MaxKey]
}

func testLongKeys(t *testing.T, s blobs.Store) {
	for _, key := range []string{"c/" + strings.Repeat("x", blobs.MaxComponent), longest(), "d/" + strings.Repeat("-._A", 50)} {
		body := Body(100)
		must(t, s.PutIfAbsent(t.Context(), key, body))
		wantBody(t, s, key, body)
		page, err := s.List(t.Context(), key[:3], "", 10)
		must(t, err)
		if len(page) != 1 || page[0].Key != key {
			t.Errorf("list of a key of %d bytes gave %v", len(key), page)
		}
		must(t, s.Delete(t.Context(), key))
	}
}

func testBadKeys(t *testing.T, s blobs.Store) {
	ctx := t.Context()
	must(t, s.Put(ctx, "good", []byte("x")))
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", "a b", "a\x00b", "ä", "a\nb", ".", "..", "../a", "a/./b", "a/../b", "a~", "a?b", `a\b`, "a%2fb",
		strings.Repeat("x", blobs.MaxComponent+1), longest() + "k",
	} {
		_, getErr := s.Get(ctx, key, 0, -1)
		for op, err := range map[string]error{
			"get": getErr, "put": s.Put(ctx, key, []byte("x")), "put if absent": s.PutIfAbsent(ctx, key, []byte("x")), "delete": s.Delete(ctx, key),
		} {
			if err == nil || errors.Is(err, blobs.ErrUnavailable) || errors.Is(err, blobs.ErrNotExist) || errors.Is(err, blobs.ErrExist) {
				t.Errorf("%s of bad key %.50q: got error %v, want one that names the key", op, key, err)
			}
		}
	}
	page, err := s.List(ctx, "", "", 0)
	must(t, err)
	if len(page) != 1 || page[0].Key != "good" {
		t.Errorf("after refused keys the store lists %v, want only good", page)
	}
}

func testURL(t *testing.T, s blobs.Store) {
	loc, err := blobs.ParseURL(s.URL())
	must(t, err)
	if loc.String() != s.URL() {
		t.Errorf("URL() is %q, canonical is %q", s.URL(), loc)
	}
}

func testProbe(t *testing.T, s blobs.Store) {
	r, err := blobs.Probe(t.Context(), s, 0)
	must(t, err)
	if !r.OK() || !r.Exclusive() || !r.Range || !r.List || !r.Delete {
		t.Errorf("probe: %+v", r)
	}
	for _, c := range blobs.Permissions(t.Context(), s) {
		if !c.OK || c.Detail == "" || c.Remedy != "" {
			t.Errorf("permission %+v", c)
		}
	}
	page, err := s.List(t.Context(), "", "", 0)
	must(t, err)
	if len(page) != 0 {
		t.Errorf("the probes left %v", page)
	}
}

package blobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	probeRounds  = 3                // races: one may come out right by luck
	probeTidyup  = 20 * time.Second // for deleting the probe objects, also after ctx has ended
	probeWriters = 16               // parallel writers of a race
)

// ProbeResult is what Probe found. Each field is true only if it was seen to work.
type ProbeResult struct {
	Race       bool // of concurrent PutIfAbsent calls exactly one succeeded and its body was stored, in every round
	Sequential bool // PutIfAbsent of a key that exists gave ErrExist and changed nothing
	Range      bool // Get of a range gave exactly that range
	List       bool // List showed the object with its size, and not after its own key
	Delete     bool // a deleted object is gone
	Failures   []string
}

// OK tells whether everything worked.
func (r ProbeResult) OK() bool { return len(r.Failures) == 0 }

// Exclusive tells whether conditional puts can be trusted: without it only a single writer is safe.
func (r ProbeResult) Exclusive() bool { return r.Race && r.Sequential }

func (r ProbeResult) String() string {
	if r.OK() {
		return "conditional puts, ranges, listing and deletion work"
	}
	return strings.Join(r.Failures, "; ")
}

// expect records text as a failure unless ok.
func (r *ProbeResult) expect(ok bool, text string, args ...any) bool {
	if !ok {
		r.Failures = append(r.Failures, fmt.Sprintf(text, args...))
	}
	return ok
}

// Probe asks a store whether it keeps the contract where trust begins: n parallel PutIfAbsent calls (n <= 0: 16) of
// one fresh key must have exactly one winner, three times over, because some stores ignore the condition silently and
// others honour it only when calls do not overlap. Then a sequential one, a range, a listing and a deletion.
//
// What the store does wrong is in the result. The error is for what kept Probe from finding out: no access, no store,
// no answer. Probe writes only below probe/ and removes what it wrote, also when ctx ends.
func Probe(ctx context.Context, store Store, n int) (ProbeResult, error) {
	if n <= 0 {
		n = probeWriters
	}
	var r ProbeResult
	base := "probe/" + rand.Text()
	var keys []string
	defer func() { removeProbes(ctx, store, keys) }()

	r.Race = true
	for round := range probeRounds {
		key := fmt.Sprintf("%s-%d", base, round)
		keys = append(keys, key)
		ok, err := r.race(ctx, store, key, n)
		if err != nil {
			return ProbeResult{}, fmt.Errorf("probe %s: %w", store.URL(), err)
		}
		r.Race = r.Race && ok
	}
	if err := r.sequence(ctx, store, keys[0]); err != nil {
		return ProbeResult{}, fmt.Errorf("probe %s: %w", store.URL(), err)
	}
	return r, nil
}

// race lets n writers want one key.
func (r *ProbeResult) race(ctx context.Context, store Store, key string, n int) (bool, error) {
	bodies := make([][]byte, n)
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		bodies[i] = fmt.Appendf(nil, "%s writer %d %s", key, i, rand.Text())
		wg.Go(func() {
			<-start
			errs[i] = store.PutIfAbsent(ctx, key, bodies[i])
		})
	}
	close(start)
	wg.Wait()

	var winners []int
	var unknown error
	for i, err := range errs {
		switch {
		case err == nil:
			winners = append(winners, i)
		case errors.Is(err, ErrUnsupported):
			return r.expect(false, "the store refuses conditional puts: %v", err), nil
		case errors.Is(err, ErrUnavailable):
			unknown = err // may have stored its body all the same
		case !errors.Is(err, ErrExist):
			return false, err
		}
	}
	if len(winners) > 1 {
		return r.expect(false, "%d of %d parallel conditional puts of one key succeeded, want exactly 1", len(winners), n), nil
	}
	if len(winners) == 0 {
		if unknown != nil {
			return false, unknown
		}
		return r.expect(false, "none of %d parallel conditional puts of a fresh key succeeded, want exactly 1", n), nil
	}
	got, err := store.Get(ctx, key, 0, -1)
	if err != nil {
		return false, err
	}
	return r.expect(bytes.Equal(got, bodies[winners[0]]), "the stored object is not the one whose conditional put succeeded"), nil
}

// sequence checks the rest on an object that exists (or is made here, where conditional puts do not work).
func (r *ProbeResult) sequence(ctx context.Context, store Store, key string) error {
	body := []byte("0123456789 " + rand.Text())
	if err := store.Put(ctx, key, body); err != nil {
		return err
	}
	err := store.PutIfAbsent(ctx, key, []byte("intruder"))
	if err != nil && !errors.Is(err, ErrExist) && !errors.Is(err, ErrUnsupported) {
		return err
	}
	refused := r.expect(errors.Is(err, ErrExist), "a conditional put of a key that exists gave %v, want %v", err, ErrExist)
	got, err := store.Get(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	same := r.expect(bytes.Equal(got, body), "a conditional put that should be refused changed the object")
	r.Sequential = refused && same
	if !same {
		if err := store.Put(ctx, key, body); err != nil {
			return err
		}
	}
	return r.readBack(ctx, store, key, body)
}

// readBack checks range, listing and deletion of the object body under key.
func (r *ProbeResult) readBack(ctx context.Context, store Store, key string, body []byte) error {
	got, err := store.Get(ctx, key, 3, 4)
	if err != nil {
		return err
	}
	r.Range = r.expect(bytes.Equal(got, body[3:7]), "a get of 4 bytes from 3 gave %q, want %q", got, body[3:7])

	page, err := store.List(ctx, key, "", 10)
	if err != nil {
		return err
	}
	next, err := store.List(ctx, key, key, 10)
	if err != nil {
		return err
	}
	shown := len(page) == 1 && page[0].Key == key && page[0].Size == int64(len(body))
	r.List = r.expect(shown && len(next) == 0, "a list of one object's key gave %v, and after that key %v", page, next)

	if err := store.Delete(ctx, key); err != nil {
		return err
	}
	_, err = store.Get(ctx, key, 0, -1)
	if err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	r.Delete = r.expect(err != nil, "a deleted object can still be read")
	return nil
}

// removeProbes deletes what a probe may have left. Its own failure is not worth an error: the objects are tiny, below
// probe/, and nobody reads them.
func removeProbes(ctx context.Context, store Store, keys []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTidyup)
	defer cancel()
	for _, key := range keys {
		if store.Delete(ctx, key) != nil {
			return
		}
	}
}

// Check is one thing that doctor tried and what came of it.
type Check struct {
	Name   string // "put", "get", ...
	OK     bool
	Detail string // what was seen
	Remedy string // what to do about it; empty if OK
}

// maxSkew is the difference of clocks from which a check warns; S3 refuses requests from 15 minutes on.
const maxSkew = 2 * time.Minute

// Permissions tries each kind of request once and tells what works, for doctor. It writes only below probe/ and
// removes what it wrote.
func Permissions(ctx context.Context, store Store) []Check {
	key := "probe/" + rand.Text()
	fresh := key + "-absent"
	body := []byte("wsfs doctor " + rand.Text())
	defer removeProbes(ctx, store, []string{key, fresh})

	steps := []struct {
		name, permission string
		try              func() (string, error)
	}{
		{"put", "s3:PutObject", func() (string, error) { return "", store.Put(ctx, key, body) }},
		{"get", "s3:GetObject", func() (string, error) { return "", sameBytes(ctx, store, key, 0, -1, body) }},
		{"range", "s3:GetObject", func() (string, error) { return "", sameBytes(ctx, store, key, 5, 6, body[5:11]) }},
		{"list", "s3:ListBucket", func() (string, error) {
			page, err := store.List(ctx, key, "", 2)
			if err == nil && (len(page) != 1 || page[0].Key != key) {
				err = fmt.Errorf("the object just put is not listed; got %v", page)
			}
			return "", err
		}},
		{"conditional put", "s3:PutObject", func() (string, error) { return "", conditional(ctx, store, key, fresh) }},
		{"presign", "s3:GetObject", func() (string, error) {
			_, err := store.Presign(ctx, key, time.Minute, PresignOptions{})
			if errors.Is(err, ErrUnsupported) {
				return "this kind of store has no presigned links", nil
			}
			return "", err
		}},
		{"delete", "s3:DeleteObject", func() (string, error) { return "", store.Delete(ctx, key) }},
		{"clock", "", func() (string, error) { return clock(ctx, store) }},
	}
	checks := make([]Check, 0, len(steps))
	for _, s := range steps {
		detail, err := s.try()
		c := Check{Name: s.name, OK: err == nil, Detail: detail}
		if err != nil {
			c.Detail, c.Remedy = err.Error(), remedy(err, s.permission)
		} else if detail == "" {
			c.Detail = "works"
		}
		checks = append(checks, c)
	}
	return checks
}

func sameBytes(ctx context.Context, store Store, key string, offset, length int64, want []byte) error {
	got, err := store.Get(ctx, key, offset, length)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("got %q, want %q", got, want)
	}
	return err
}

// conditional checks both answers of PutIfAbsent: for a key that exists and for one that does not.
func conditional(ctx context.Context, store Store, exists, fresh string) error {
	err := store.PutIfAbsent(ctx, exists, []byte("intruder"))
	if !errors.Is(err, ErrExist) {
		if err == nil {
			err = fmt.Errorf("%w: a conditional put replaced an object that existed", ErrUnsupported)
		}
		return err
	}
	return store.PutIfAbsent(ctx, fresh, []byte("absent"))
}

func clock(ctx context.Context, store Store) (string, error) {
	skew, err := ClockSkew(ctx, store)
	switch {
	case errors.Is(err, ErrUnsupported):
		return "this kind of store has no clock of its own", nil
	case err != nil:
		return "", err
	case skew.Abs() > maxSkew:
		return "", fmt.Errorf("%w: the store's clock is %v from this host's", ErrClockSkew, skew.Round(time.Second))
	}
	return fmt.Sprintf("the store's clock is %v from this host's", skew.Round(time.Second)), nil
}

// remedy is the advice for an error of a request that needs permission.
func remedy(err error, permission string) string {
	switch {
	case errors.Is(err, ErrNoStore):
		return "create the bucket or directory, or correct its name in the store URL"
	case errors.Is(err, ErrDenied):
		return "check the credentials and that they allow " + permission + " (a directory: its owner and mode)"
	case errors.Is(err, ErrClockSkew):
		return "set this host's clock (an NTP client such as chrony keeps it right)"
	case errors.Is(err, ErrUnsupported):
		return "the store cannot do this: use another store, or a single writer if it is conditional puts that are missing"
	case errors.Is(err, ErrUnavailable):
		return "check the endpoint, the network and the store's own state, then try again"
	}
	return "see the detail; the store answers in an unexpected way"
}

// ClockSkew is how far the store's clock is ahead of this host's, where a driver below the wrappers can tell (a method
// ClockSkew(context.Context) (time.Duration, error)), true to about a second. Otherwise ErrUnsupported. Wrappers are
// looked through by their Unwrap method.
func ClockSkew(ctx context.Context, store Store) (time.Duration, error) {
	for s := store; s != nil; {
		if c, ok := s.(interface {
			ClockSkew(context.Context) (time.Duration, error)
		}); ok {
			return c.ClockSkew(ctx)
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	return 0, fmt.Errorf("clock of %s: %w", store.URL(), ErrUnsupported)
}

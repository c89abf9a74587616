package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"wsfs/blobs"
)

// DefaultLeaseTTL is how long a lease counts as live after it was last renewed.
const DefaultLeaseTTL = 60 * time.Second

// errNoLease: there is no lease object.
var errNoLease = errors.New("no lease")

// Holder is the body of a lease object.
type Holder struct {
	Holder   string    `json:"holder"` // label for people, usually user@host
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Writer   string    `json:"writer"` // id of the cache directory
	Epoch    uint64    `json:"epoch"`  // of its last commit; for people
	Acquired time.Time `json:"acquired"`
	Renewed  time.Time `json:"renewed"`
	TTL      float64   `json:"ttl"` // seconds
	Nonce    string    `json:"nonce"`
}

// live tells whether the lease has not run out. A holder whose clock is ahead of ours is live.
func (h *Holder) live(now time.Time) bool {
	return now.Sub(h.Renewed) < time.Duration(h.TTL*float64(time.Second))
}

func (h *Holder) heldError(name string, now time.Time) *HeldError {
	return &HeldError{Workspace: name, Holder: h.Holder, Host: h.Host, PID: h.PID, Writer: h.Writer,
		Age: max(now.Sub(h.Renewed), 0)}
}

// LeaseOptions configures Acquire.
type LeaseOptions struct {
	Writer   string // required: id of the cache directory; the same one acquires again at once
	Holder   string // label for people; default Writer
	Host     string // default the host's name
	PID      int
	Takeover bool          // take the lease even if it is live
	TTL      time.Duration // default DefaultLeaseTTL; at least 1 s
	Clock    Clock         // default the pool's
	// OnLost, if not nil, is called once, from Renew, when the lease was found in other hands. We are then likely to
	// be fenced.
	OnLost func(by Holder)
}

// Lease is our claim on a workspace, kept in its lease object. It is a courtesy to people: it makes a second mount
// fail with a clear message. What keeps two writers apart is the number of the next commit, so nothing here needs to be
// atomic, and a lease that was lost decides nothing.
type Lease struct {
	repo   *Repo
	name   string
	clock  Clock
	onLost func(Holder)

	mu   sync.Mutex // guards what follows; held during requests, so that Renew and Release do not cross
	body Holder
	lost bool // found in other hands, or released: never put again
}

func leaseKey(name string) string { return workspacePrefix(name) + "lease" }

// holder reads the lease object; errNoLease if there is none or if it cannot be read as one.
func (r *Repo) holder(ctx context.Context, name string) (*Holder, error) {
	body, err := r.store.Get(ctx, leaseKey(name), 0, -1)
	if errors.Is(err, blobs.ErrNotExist) {
		return nil, errNoLease
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lease of %q: %w", name, err)
	}
	h := new(Holder)
	if err := json.Unmarshal(body, h); err != nil {
		r.log.Warn("the lease object is damaged and counts as absent", "workspace", name, "error", err)
		return nil, errNoLease
	}
	return h, nil
}

// LeaseHolder tells who holds the lease of a workspace and whether it is live; nil if nobody does.
func (r *Repo) LeaseHolder(ctx context.Context, name string) (h *Holder, live bool, err error) {
	if err := ValidName(name); err != nil {
		return nil, false, err
	}
	h, err = r.holder(ctx, name)
	if errors.Is(err, errNoLease) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return h, h.live(r.clock.Now()), nil
}

// Acquire takes the lease of a workspace. It fails with a *HeldError if another writer holds a live one and o.Takeover
// does not take it all the same. A lease that ran out, or that is ours, is taken at once.
func (r *Repo) Acquire(ctx context.Context, name string, o LeaseOptions) (*Lease, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	if o.Writer == "" {
		return nil, fmt.Errorf("lease of %q: no writer id given", name)
	}
	if o.TTL == 0 {
		o.TTL = DefaultLeaseTTL
	}
	if o.TTL < time.Second {
		return nil, fmt.Errorf("lease of %q: time to live of %s, at least 1s wanted", name, o.TTL)
	}
	if o.Clock == nil {
		o.Clock = r.clock
	}
	if o.Host == "" {
		o.Host = hostname()
	}
	if o.Holder == "" {
		o.Holder = o.Writer
	}
	now := o.Clock.Now().UTC()
	l := &Lease{repo: r, name: name, clock: o.Clock, onLost: o.OnLost, body: Holder{
		Holder: o.Holder, Host: o.Host, PID: o.PID, Writer: o.Writer, Acquired: now, Renewed: now, TTL: o.TTL.Seconds(),
		Nonce: newNonce(),
	}}
	return l, l.take(ctx, o.Takeover)
}

// take puts our lease object where there is none, or none that counts.
func (l *Lease) take(ctx context.Context, takeover bool) error {
	for range 3 { // another one may come or go between our look and our put
		there, err := l.repo.holder(ctx, l.name)
		if errors.Is(err, errNoLease) {
			err = l.create(ctx)
			if errors.Is(err, blobs.ErrExist) {
				continue
			}
			return err
		}
		if err != nil {
			return err
		}
		now := l.clock.Now()
		if there.Writer != l.body.Writer && there.live(now) && !takeover {
			return there.heldError(l.name, now)
		}
		return l.put(ctx)
	}
	return fmt.Errorf("lease of %q: others keep taking and leaving it: %w", l.name, ErrHeld)
}

func (l *Lease) create(ctx context.Context) error {
	body, err := json.Marshal(&l.body)
	if err != nil {
		return fmt.Errorf("encoding the lease of %q: %w", l.name, err)
	}
	err = l.repo.putOnce(ctx, leaseKey(l.name), body)
	if !errors.Is(err, blobs.ErrExist) {
		if err != nil {
			return fmt.Errorf("putting the lease of %q: %w", l.name, err)
		}
		return nil
	}
	there, herr := l.repo.holder(ctx, l.name)
	switch {
	case errors.Is(herr, errNoLease):
		return l.put(ctx) // what is there is no lease
	case herr != nil:
		return herr
	case there.Nonce == l.body.Nonce: // the reply was lost
		return nil
	}
	return err
}

func (l *Lease) put(ctx context.Context) error {
	body, err := json.Marshal(&l.body)
	if err != nil {
		return fmt.Errorf("encoding the lease of %q: %w", l.name, err)
	}
	if err := l.repo.store.Put(ctx, leaseKey(l.name), body); err != nil {
		return fmt.Errorf("putting the lease of %q: %w", l.name, err)
	}
	return nil
}

// Writer is the id the lease was acquired for.
func (l *Lease) Writer() string { return l.body.Writer }

// Host is the host the lease names.
func (l *Lease) Host() string { return l.body.Host }

// TTL is how long the lease counts as live after a renewal; renew at a third of it.
func (l *Lease) TTL() time.Duration { return time.Duration(l.body.TTL * float64(time.Second)) }

// Renew shows that we are alive (one GET, one PUT). It fails with a *HeldError if the lease is in other hands, and
// leaves it there. A lease object that is gone is put again.
func (l *Lease) Renew(ctx context.Context, epoch uint64) error {
	by, err := l.renew(ctx, epoch)
	if by != nil && l.onLost != nil {
		l.onLost(*by)
	}
	return err
}

// renew returns the other holder when it is met for the first time.
func (l *Lease) renew(ctx context.Context, epoch uint64) (*Holder, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there, err := l.repo.holder(ctx, l.name)
	if err != nil && !errors.Is(err, errNoLease) {
		return nil, err
	}
	now := l.clock.Now()
	if there != nil && there.Writer != l.body.Writer {
		held := there.heldError(l.name, now)
		if l.lost {
			return nil, held
		}
		l.lost = true
		return there, held
	}
	if l.lost {
		return nil, fmt.Errorf("lease of %q: released or lost: %w", l.name, ErrHeld)
	}
	l.body.Renewed, l.body.Epoch = now.UTC(), epoch
	return nil, l.put(ctx)
}

// Release removes the lease object if it is still ours. The lease cannot be renewed afterwards.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	there, err := l.repo.holder(ctx, l.name)
	if errors.Is(err, errNoLease) {
		return nil
	}
	if err != nil {
		return err
	}
	if there.Writer != l.body.Writer {
		return nil
	}
	if err := l.repo.store.Delete(ctx, leaseKey(l.name)); err != nil {
		return fmt.Errorf("releasing the lease of %q: %w", l.name, err)
	}
	return nil
}

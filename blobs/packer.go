package blobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Defaults and bounds of PackerOptions.
const (
	DefaultPackTarget  = 16 << 20
	DefaultPackUploads = 4
	maxPackTarget      = maxPack / 4 // the first chunk of a pack may overshoot the target
)

// ErrPackerClosed is returned by every call after Close.
var ErrPackerClosed = errors.New("packer is closed")

// PackerOptions configures a Packer; the zero value is good.
type PackerOptions struct {
	// Target is the size in bytes a pack is sealed at, footer included; 0 means DefaultPackTarget, more than
	// 64 MiB means 64 MiB. Only a single chunk larger than Target makes a pack larger than Target.
	Target int
	// Uploads is how many packs may be verified and uploaded at once; 0 or less means DefaultPackUploads. A Packer
	// holds at most (Uploads + 1) packs in memory.
	Uploads int
	// Cache, if not nil, also gets each pack once it is durable, best effort.
	Cache *PackCache
	// OnUploaded, if not nil, is called once for each pack after it became durable, from an upload goroutine, never
	// two calls at a time. It must not call the Packer, and may keep the slice.
	OnUploaded func(PackID, []PackEntry)
}

// PackerStats counts what a Packer did.
type PackerStats struct {
	Packs       int64 // packs that are durable
	StoredBytes int64 // stored forms added, durable or not, without headers and footers
	RawBytes    int64 // content of the chunks added, before compression
	Chunks      int64 // distinct chunks added
}

// Packer gathers chunks into packs and uploads the full ones in the background. Its life is one commit: it
// remembers every chunk it was given, about 150 bytes each.
//
// A pack goes through: open (the only one that takes chunks) -> sealed -> verified -> stored -> reported. Its name is
// drawn when it opens, so a chunk's reference is final as soon as it is added, but points at nothing until Flush
// returned without error: a reference must not be published before.
//
// Memory is bounded by slots: a pack may be sealed only into a free slot, and Add waits for one rather than let the
// open pack grow past its target. A full pack with no free slot stays open; whoever needs room next seals it.
//
// The first failed upload (after whatever retrying the Store does) ends the Packer: uploads in flight are cancelled
// and all later calls return that error, because references to the lost pack are already out.
type Packer struct {
	store      Store
	cache      *PackCache
	onUploaded func(PackID, []PackEntry)

	target int
	ctx    context.Context // of the uploads; outlives the Add that started one
	cancel context.CancelFunc
	slots  chan struct{}  // one token per pack sealed and not yet reported
	work   sync.WaitGroup // upload goroutines

	reporting sync.Mutex // serialises onUploaded; taken without mu

	mu      sync.Mutex // guards everything below; never held while encoding, uploading or waiting
	open    *packBuilder
	refs    map[ID]Ref
	sealed  map[*packBuilder]chan struct{} // closed when the pack is reported or has failed
	spare   [][]byte                       // bodies of finished packs, to be filled again
	stats   PackerStats
	err     error         // first failure
	changed chan struct{} // closed and replaced when err was set
}

// NewPacker returns a Packer that writes to store. Call Flush to make its packs durable, and Close when done with it.
func NewPacker(store Store, o PackerOptions) *Packer {
	if o.Target <= 0 {
		o.Target = DefaultPackTarget
	}
	if o.Uploads <= 0 {
		o.Uploads = DefaultPackUploads
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Packer{
		store: store, cache: o.Cache, onUploaded: o.OnUploaded,
		target: min(o.Target, maxPackTarget), ctx: ctx, cancel: cancel, slots: make(chan struct{}, o.Uploads),
		refs: make(map[ID]Ref), sealed: make(map[*packBuilder]chan struct{}), changed: make(chan struct{}),
	}
}

var storedForms = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// Add puts content, whose name must be id, into the open pack and returns where it will be. A chunk already given to
// this Packer is not stored again. It compresses on the caller's goroutine, so call it from several to use several
// processors, and blocks while too many packs are in flight; if ctx ends meanwhile the chunk was not added and the
// Packer is unharmed. content is not kept. A wrong id is found before the pack leaves, and fails the Packer.
func (p *Packer) Add(ctx context.Context, kind ChunkKind, id ID, content []byte) (Ref, error) {
	if len(content) > MaxChunk {
		return Ref{}, fmt.Errorf("packing chunk %s: %d bytes, at most %d allowed", id, len(content), MaxChunk)
	}
	if !kind.valid() {
		return Ref{}, fmt.Errorf("packing chunk %s: %s", id, kind)
	}
	if ref, known, err := p.known(id); known || err != nil {
		return ref, err
	}
	buf := storedForms.Get().(*[]byte)
	defer storedForms.Put(buf)
	*buf = encodeKind(kind, (*buf)[:0], content)
	for {
		ref, done, err := p.tryAdd(kind, id, *buf, len(content))
		if done || err != nil {
			return ref, err
		}
		if err := p.waitSlot(ctx); err != nil {
			return Ref{}, err
		}
		p.sealInto(func(b *packBuilder) bool { return !b.fits(len(*buf), p.target) })
	}
}

func (p *Packer) known(id ID) (Ref, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ref, ok := p.refs[id]
	return ref, ok, p.err
}

// tryAdd appends a stored form to the open pack if there is room; if not, the open pack must be sealed first.
func (p *Packer) tryAdd(kind ChunkKind, id ID, stored []byte, raw int) (Ref, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Ref{}, false, p.err
	}
	if ref, ok := p.refs[id]; ok { // another caller was encoding it too
		return ref, true, nil
	}
	if p.open == nil {
		p.open = newPackBuilder(p.buffer())
	}
	if !p.open.fits(len(stored), p.target) {
		return Ref{}, false, nil
	}
	p.open.room(len(stored), p.target)
	ref := p.open.add(kind, id, stored, raw)
	p.refs[id] = ref
	p.stats.Chunks++
	p.stats.RawBytes += int64(raw)
	p.stats.StoredBytes += int64(len(stored))
	return ref, true, nil
}

// buffer returns memory for a pack. Caller holds mu.
func (p *Packer) buffer() []byte {
	if n := len(p.spare); n > 0 {
		b := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return b
	}
	return nil
}

// waitSlot takes a slot, or fails with ctx or the Packer.
func (p *Packer) waitSlot(ctx context.Context) error {
	p.mu.Lock()
	changed, err := p.changed, p.err
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-changed:
		return p.failure()
	case <-ctx.Done():
		return fmt.Errorf("waiting for pack uploads: %w", context.Cause(ctx))
	}
}

func (p *Packer) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// sealInto closes the open pack and starts its upload in the slot the caller took, if due still says so under the
// lock; else it gives the slot back, because another caller sealed the pack meanwhile.
func (p *Packer) sealInto(due func(*packBuilder) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.open
	if p.err != nil || b == nil || len(b.entries) == 0 || !due(b) {
		<-p.slots
		return
	}
	p.open = nil
	p.sealed[b] = make(chan struct{})
	p.work.Go(func() { p.upload(b) })
}

// upload makes one sealed pack durable and reports it.
func (p *Packer) upload(b *packBuilder) {
	err := p.deliver(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.sealed[b])
	delete(p.sealed, b)
	if err != nil {
		p.failLocked(err)
	} else {
		p.stats.Packs++
		p.spare = append(p.spare, b.body[:0])
	}
	<-p.slots
}

func (p *Packer) deliver(b *packBuilder) error {
	body := b.seal()
	if err := verifyPack(body, b.entries); err != nil {
		return fmt.Errorf("verifying pack %s before upload: %w", b.id, err)
	}
	// Put, not PutIfAbsent: the name is random, and a retried Put of the same bytes is harmless.
	if err := p.store.Put(p.ctx, b.id.Key(), body); err != nil {
		return fmt.Errorf("uploading pack %s: %w", b.id, err)
	}
	if p.cache != nil {
		p.cache.keep(b.id, body)
	}
	if p.onUploaded != nil {
		p.reporting.Lock()
		defer p.reporting.Unlock()
		p.onUploaded(b.id, b.entries)
	}
	return nil
}

// failLocked records the first failure and wakes everybody who waits. Caller holds mu.
func (p *Packer) failLocked(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	close(p.changed)
	p.cancel()
}

// Flush seals the open pack and returns when every chunk added before the call is durable and reported. If ctx ends
// first, uploads go on and Flush may be called again; any other error is final.
func (p *Packer) Flush(ctx context.Context) error {
	if p.dirty() {
		if err := p.waitSlot(ctx); err != nil {
			return err
		}
		p.sealInto(func(*packBuilder) bool { return true })
	}
	for _, done := range p.inFlight() {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("waiting for pack uploads: %w", context.Cause(ctx))
		}
	}
	return p.failure()
}

func (p *Packer) dirty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open != nil && len(p.open.entries) > 0
}

func (p *Packer) inFlight() []chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := make([]chan struct{}, 0, len(p.sealed))
	for _, done := range p.sealed {
		waits = append(waits, done)
	}
	return waits
}

// Close gives up what is not durable, cancels uploads in flight and waits for them to end. Without a Flush before,
// chunks are lost. It may be called more than once.
func (p *Packer) Close() {
	p.mu.Lock()
	p.failLocked(ErrPackerClosed)
	p.open, p.spare = nil, nil
	p.mu.Unlock()
	p.work.Wait()
}

// Stats returns the counters so far.
func (p *Packer) Stats() PackerStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

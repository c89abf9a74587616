package syncer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
)

// WriterOptions configures a Writer; the zero value is good.
type WriterOptions struct {
	// Writer and Host go into commits; default those of the lease.
	Writer, Host string

	Quiet  time.Duration // commit after this long without a Touch; default 1 s
	Latest time.Duration // and at the latest this long after the first Touch; default 5 s

	PackTarget int              // bytes, see blobs.PackerOptions
	Uploads    int              // packs uploaded at once, see blobs.PackerOptions
	Cache      *blobs.PackCache // gets what is uploaded; may be nil
	Readers    int              // files read and chunked at once; default 2

	// InlineMax is the size in bytes up to which a file lies in its inode record; default 512, negative: none.
	InlineMax int
	// StableTries is how often a commit freezes and reads again because files changed meanwhile; default 3.
	StableTries int
	// StablePause is the pause before the second try; it doubles. Default 50 ms.
	StablePause time.Duration
	// BigCommit is how many bytes of content a commit must have to wait for the pool's chunk indexes; default 4 MiB.
	BigCommit int64
	// IndexWait bounds that wait, and IndexFresh is how long loaded indexes count as complete. Default 30 s, 5 min.
	IndexWait, IndexFresh time.Duration
	// SleepFloor is how long the Writer may have had no contact with its head before it must look whether it still is
	// the newest: retention frees no number that is younger. Default 10 min.
	SleepFloor time.Duration
	// PendingMax is how long a commit whose put ended in doubt is put again before it is given up; default 30 min. It
	// must stay below the grace of garbage collection.
	PendingMax time.Duration

	Clock Clock        // default the pool's
	Log   *slog.Logger // default the pool's
}

func (o *WriterOptions) fill(repo *Repo, lease *Lease) {
	if lease != nil {
		o.Writer, o.Host = or(o.Writer, lease.Writer()), or(o.Host, lease.Host())
	}
	o.Host = or(o.Host, hostname())
	o.Quiet, o.Latest = or(o.Quiet, time.Second), or(o.Latest, 5*time.Second)
	o.Readers = or(max(o.Readers, 0), 2)
	o.InlineMax = or(o.InlineMax, 512)
	o.StableTries, o.StablePause = or(max(o.StableTries, 0), 3), or(o.StablePause, 50*time.Millisecond)
	o.BigCommit = or(o.BigCommit, 4<<20)
	o.IndexWait, o.IndexFresh = or(o.IndexWait, 30*time.Second), or(o.IndexFresh, 5*time.Minute)
	o.SleepFloor, o.PendingMax = or(o.SleepFloor, 10*time.Minute), or(o.PendingMax, 30*time.Minute)
	o.Clock, o.Log = or(o.Clock, repo.clock), or(o.Log, repo.log)
}

// or returns v unless it is the zero value.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Writer makes the commits of one workspace. It is safe for concurrent use; there must be one per Local.
type Writer struct {
	repo  *Repo
	name  string
	local Local
	lease *Lease // may be nil
	o     WriterOptions
	log   *slog.Logger

	indexes indexState

	// The background loop's view of activity; see Touch.
	touched atomic.Bool
	asleep  atomic.Bool
	wake    chan struct{}

	done, total atomic.Int64 // bytes of content read for the running commit, and to be read

	turn chan struct{} // holds one token; who has it makes a commit and owns the fields up to mu
	base *metadata.Tree
	// pending is a commit that was put with an unknown outcome, or that is in the store but not settled.
	pending *pendingCommit
	contact time.Time // when we last knew head to be the newest
	epoch   uint64
	// unindexed are data chunks we made durable that no index object names yet.
	unindexed struct {
		sync.Mutex
		refs map[blobs.ID]blobs.Ref
	}

	mu       sync.Mutex // guards everything below
	head     Commit
	next     *flight // callers waiting for a commit that has not begun
	status   WriterStatus
	live     bool // the last commit saw files that may be written behind our back
	fenced   *FencedError
	refused  error // see Refuse
	onFenced []func(error)
}

// WriterStatus is a Writer at one moment.
type WriterStatus struct {
	Head       Commit    // the newest commit we know of
	LastCommit time.Time // when this Writer last made one, zero if it has not
	Committing bool
	Done       int64 // bytes of content read for the running commit
	Total      int64 // and to be read
	LastError  error // why the last try failed, nil since it works again
	ErrorSince time.Time
	Unstable   int          // files the last commit could not catch at rest
	Fenced     *FencedError // set for good once fenced
	Commits    int64        // made by this Writer
	Packs      int64        // uploaded by this Writer
	Uploaded   int64        // bytes of chunks uploaded by this Writer, compressed
}

// NewWriter returns a Writer that goes on from head, whose tree is base. The caller has just read head: that counts as
// contact with the store. It does nothing until Commit, Takeover or Run is called. If head was made by another writer
// id, our commits have the next epoch.
func NewWriter(repo *Repo, name string, head *Commit, base *metadata.Tree, local Local, lease *Lease, o WriterOptions) *Writer {
	o.fill(repo, lease)
	w := &Writer{
		repo: repo, name: name, local: local, lease: lease, o: o, log: o.Log,
		wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		base: base, contact: o.Clock.Now(), epoch: head.Epoch, head: *head,
	}
	if head.Writer != o.Writer {
		w.epoch++
	}
	w.unindexed.refs = make(map[blobs.ID]blobs.Ref)
	return w
}

// flight is one commit and everybody who waits for it.
type flight struct {
	message string
	run     func(ctx context.Context, message string, patient bool) (*Commit, error)
	patient bool // guarded by Writer.mu
	ctx     context.Context
	cancel  context.CancelFunc
	waiting int           // guarded by Writer.mu; the flight is cancelled when nobody waits
	done    chan struct{} // closed when head and err are set
	head    *Commit
	err     error
}

// Commit makes what the live side has changed durable and returns the commit it is in: the head if nothing has
// changed. Commits are made one at a time; callers that arrive while one is being made share the next one, whose
// state is frozen after they called. If ctx ends first the commit goes on only if others wait for it, and when the
// last one leaves Commit returns after it has stopped. Errors: *FencedError, or whatever the store or the live side
// reported; then everything is as dirty as it was.
func (w *Writer) Commit(ctx context.Context, message string) (*Commit, error) {
	return w.join(ctx, message, true)
}

// join boards the next commit. It is patient with busy files if anybody on board asked for it; see busySize.
func (w *Writer) join(ctx context.Context, message string, patient bool) (*Commit, error) {
	w.mu.Lock()
	f := w.next
	if f == nil {
		f = &flight{run: w.commit, done: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		w.next = f
		go w.fly(f)
	}
	f.waiting++
	f.patient = f.patient || patient
	if message != "" {
		f.message = message
	}
	w.mu.Unlock()
	select {
	case <-f.done:
		return f.head, f.err
	case <-ctx.Done():
	}
	if w.leave(f) {
		<-f.done // it was cancelled
	}
	select {
	case <-f.done:
		if f.err == nil {
			return f.head, nil
		}
	default:
	}
	return nil, context.Cause(ctx)
}

// leave takes one caller out of a flight; true if it was the last and the flight is cancelled.
func (w *Writer) leave(f *flight) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.waiting--
	if f.waiting > 0 {
		return false
	}
	f.cancel()
	if w.next == f { // not begun: newcomers must not board it
		w.next = nil
	}
	return true
}

func (w *Writer) fly(f *flight) {
	defer f.cancel()
	defer close(f.done)
	select {
	case w.turn <- struct{}{}:
	case <-f.ctx.Done():
		f.err = context.Cause(f.ctx)
		return
	}
	defer func() { <-w.turn }()
	w.mu.Lock()
	if w.next == f {
		w.next = nil
	}
	message, patient := f.message, f.patient
	w.mu.Unlock()
	f.head, f.err = f.run(f.ctx, message, patient)
	w.note(f.err)
}

// note keeps the outcome of a try for Status. A cancelled try says nothing about the store.
func (w *Writer) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.status.LastError, w.status.ErrorSince = nil, time.Time{}
	case errors.Is(err, context.Canceled):
	default:
		if w.status.LastError == nil {
			w.status.ErrorSince = w.o.Clock.Now()
		}
		w.status.LastError = err
	}
}

// Status returns the Writer's state now.
func (w *Writer) Status() WriterStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Head, s.Fenced = w.head, w.fenced
	if s.Committing {
		s.Done, s.Total = w.done.Load(), w.total.Load()
	}
	return s
}

// OnFence has fn called once when the Writer is fenced, at once if it is already. The error is a *FencedError. fn must
// not wait for the Writer.
func (w *Writer) OnFence(fn func(error)) {
	w.mu.Lock()
	fenced := w.fenced
	if fenced == nil {
		w.onFenced = append(w.onFenced, fn)
	}
	w.mu.Unlock()
	if fenced != nil {
		fn(fenced)
	}
}

// fence ends our reign for good.
func (w *Writer) fence(theirs *Commit) error {
	w.mu.Lock()
	if w.fenced != nil {
		defer w.mu.Unlock()
		return w.fenced
	}
	w.fenced = &FencedError{Workspace: w.name, Ours: w.head.Number}
	if theirs != nil {
		w.fenced.Theirs = *theirs
	}
	err, tell := w.fenced, w.onFenced
	w.onFenced = nil
	w.mu.Unlock()
	w.log.Error("fenced: this workspace has another writer now; everything local is kept", "error", err)
	for _, fn := range tell {
		fn(err)
	}
	return err
}

// reigns returns the fence's error if we are fenced.
func (w *Writer) reigns() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fenced != nil {
		return w.fenced
	}
	return w.refused
}

// Refuse ends all further commits with err: the caller found out that the store cannot be trusted with them. What is
// local stays as it is.
func (w *Writer) Refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = err
}

func (w *Writer) headNow() Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

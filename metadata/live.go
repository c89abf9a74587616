package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// ErrDamaged: the live metadata on this host cannot be trusted (Badger refuses it, or the journal has a gap).
// The directory is left as it is.
var ErrDamaged = errors.New("local metadata is damaged")

// ErrClosed: the live metadata is closed, or a write to it failed before.
var ErrClosed = errors.New("local metadata is closed")

// Mutation is one key's new value; a nil Value deletes the key.
type Mutation struct {
	Key   []byte
	Value []byte

	content uint64 // the content log that StoreContent took a reference to
}

// LiveOptions configures OpenLive.
type LiveOptions struct {
	// FlushDelay is how long an op may wait in memory for company before its group is written (default 5 ms).
	FlushDelay time.Duration
	Log        *slog.Logger
}

// Live is the writable overlay over a committed tree: a Badger database whose keys win over the tree's.
//
// Ops are appended in order and written in groups; a group is one Badger transaction with one journal record, and
// groups are written strictly one after the other. After a crash the overlay is therefore a prefix of the history.
// Every method sees every op appended before it was called, written or not.
//
// Deleted keys of the committed key space stay as tombstones, since the tree below may hold them.
type Live struct {
	db  *badger.DB
	dir string
	log *slog.Logger

	flushDelay time.Duration
	wake       chan struct{} // to the flusher: something to do
	urgent     chan struct{} // to the flusher: do not wait for company
	flusher    chan struct{} // closed when the flusher has ended
	content    *contentLogs
	lost       []Ino

	mu      sync.Mutex // guards all below
	room    *sync.Cond // a batch was written
	cur     *batch     // ops being gathered
	sealed  []*batch   // full batches waiting, the first perhaps being written
	view    *view      // read transaction that sees everything but cur and sealed
	base    *Tree
	lastSeq uint64 // last op appended
	written uint64 // last op in Badger
	settled uint64 // last op in a durable commit
	// dirtyOps counts the ops ever appended that a commit must store; dirtyAt is that count at each snapshot that may be
	// settled, and dirtySettled as of the last settled one.
	dirtyOps, dirtySettled uint64
	dirtyAt                map[uint64]uint64
	snapshots              int   // open or begun
	err                    error // sticky: the first failed write; nothing is accepted after it
	closing                bool

	syncMu sync.Mutex // one sync at a time; also guards what follows
	synced uint64     // last op known to be on stable storage
	files  map[string]bool
}

// Limits of one group, well inside Badger's limits for one transaction with our memtable size.
const (
	memTableSize   = 16 << 20
	batchMaxBytes  = 1 << 20
	batchMaxKeys   = 8000
	maxSealed      = 4
	tombstone      = 1       // UserMeta of a deleted key of the committed key space
	valueThreshold = 1 << 20 // everything is in the tables: values live briefly or are small
)

type pending struct {
	value []byte // nil: deleted
	dirty bool
}

type batch struct {
	first, last uint64
	m           map[string]pending
	size        int
	snap        chan *badger.Txn // non-nil: hand out a read transaction as of the end of this batch
}

// view is a shared read transaction; it is discarded when the last reader of a replaced one leaves.
type view struct {
	txn  *badger.Txn
	refs int // under Live.mu
}

func badgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(12).
		WithBlockCacheSize(0).
		WithIndexCacheSize(16 << 20).
		WithCompression(0).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(64 << 20).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithLogger(badgerLog{log})
}

// OpenLive opens or creates the live metadata in dir. The caller must be the only one (the workspace lock sees to it)
// and must call SetBase before reading. ErrDamaged wraps what Badger or the journal check found.
func OpenLive(dir string, o LiveOptions) (*Live, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.FlushDelay <= 0 {
		o.FlushDelay = 5 * time.Millisecond
	}
	db, err := badger.Open(badgerOptions(dir, o.Log))
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("open metadata %s: %w", dir, err)
		}
		return nil, fmt.Errorf("open metadata %s: %w: %w", dir, ErrDamaged, err)
	}
	l := &Live{db: db, dir: dir, log: o.Log, flushDelay: o.FlushDelay, files: map[string]bool{}, dirtyAt: map[uint64]uint64{},
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), flusher: make(chan struct{})}
	l.room = sync.NewCond(&l.mu)
	l.view = &view{txn: db.NewTransaction(false), refs: 1}
	if err := l.checkJournal(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l.cur = newBatch()
	if l.content, err = openContentLogs(dir); err == nil {
		l.lost, err = l.loadContent()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open content logs in %s: %w", dir, err), db.Close())
	}
	go l.flushLoop()
	return l, nil
}

// Lost are the inodes whose content was found missing when the Live was opened: written and never synced before a power
// loss. Content reports ErrDamaged for them until they are written again.
func (l *Live) Lost() []Ino { return l.lost }

// NewReadOnlyLive returns a Live without an overlay: every read is the tree's, every Append fails.
func NewReadOnlyLive() *Live {
	l := &Live{log: slog.New(slog.DiscardHandler), cur: newBatch(), closing: true, flusher: make(chan struct{})}
	l.room = sync.NewCond(&l.mu)
	close(l.flusher)
	return l
}

func newBatch() *batch { return &batch{m: make(map[string]pending, 64)} }

// checkJournal reads the last sequence number and proves that the journal has no gap.
func (l *Live) checkJournal() error {
	seq, err := readUint(l.view.txn, LocalKey("settled"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	l.lastSeq, l.settled = seq, seq
	it := l.view.txn.NewIterator(badger.IteratorOptions{Prefix: []byte{KeyJournal}, PrefetchValues: true, PrefetchSize: 16})
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		last, rec, err := readJournal(it.Item())
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if last <= seq {
			continue // settled, but the crash came before its deletion
		}
		if rec.First > l.lastSeq+1 {
			return fmt.Errorf("%w: journal has ops %d to %d after op %d: a gap", ErrDamaged, rec.First, last, l.lastSeq)
		}
		l.lastSeq = last
		if len(rec.Keys) > 0 {
			l.dirtyOps += last - rec.First + 1
		}
	}
	l.written, l.synced = l.lastSeq, 0
	return nil
}

// SetBase sets the committed tree that reads fall through to.
func (l *Live) SetBase(t *Tree) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = t
}

// Base returns the committed tree that reads fall through to.
func (l *Live) Base() *Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base
}

// LastSeq is the sequence number of the last op appended.
func (l *Live) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastSeq
}

// Append adds one op: all its mutations become visible together, now, and reach Badger in one transaction. The order of
// calls is the order of history, so callers hold the lock that decides it. It takes ownership of keys and values.
// It blocks while too much waits to be written. The error is ErrClosed with the first write fault as its cause.
func (l *Live) Append(muts []Mutation) (uint64, error) { return l.append(muts, true) }

// AppendClean is Append for changes that a commit need not store, because the committed tree already says the same or
// because they are local (settling a commit, dropping a local copy).
func (l *Live) AppendClean(muts []Mutation) error {
	for len(muts) > 0 {
		n := min(len(muts), batchMaxKeys/2)
		if _, err := l.append(muts[:n], false); err != nil {
			return err
		}
		muts = muts[n:]
	}
	return nil
}

func (l *Live) append(muts []Mutation, dirty bool) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(muts) == 0 {
		return l.lastSeq, nil
	}
	size := 0
	for i := range muts {
		size += len(muts[i].Key) + len(muts[i].Value) + 64
	}
	if l.cur.size > 0 && (l.cur.size+size > batchMaxBytes || len(l.cur.m)+len(muts) > batchMaxKeys) {
		l.seal()
		for len(l.sealed) > maxSealed && l.err == nil {
			l.room.Wait()
		}
	}
	if l.err != nil || l.closing {
		return 0, l.failure()
	}
	l.lastSeq++
	if dirty {
		l.dirtyOps++
	}
	b := l.cur
	if b.first == 0 {
		b.first = l.lastSeq
	}
	b.last = l.lastSeq
	b.size += size
	for _, m := range muts {
		if m.Key[0] == KeyContent {
			if err := l.ownContent(m); err != nil {
				return 0, err
			}
		}
		p := pending{value: m.Value, dirty: dirty && Committed(m.Key)}
		if old, ok := b.m[string(m.Key)]; ok {
			p.dirty = p.dirty || old.dirty
		}
		b.m[string(m.Key)] = p
	}
	poke(l.wake)
	return l.lastSeq, nil
}

// ownContent moves an inode's content pointer.
func (l *Live) ownContent(m Mutation) error {
	ino, err := ParseInoKey(m.Key)
	if err != nil {
		return err
	}
	err = l.content.own(ino, m.Value)
	if m.content != 0 {
		l.content.unref(m.content)
	}
	return err
}

func (l *Live) failure() error {
	if l.err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, l.err)
	}
	return ErrClosed
}

// seal closes the current batch for writing. l.mu is held.
func (l *Live) seal() {
	l.sealed = append(l.sealed, l.cur)
	l.cur = newBatch()
	poke(l.urgent)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Get returns the live value of a key of either key space: the overlay's, else the tree's. The value must not be
// modified. It may wait for the store when the key's tree page is not on this host.
func (l *Live) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	v, known, err := l.GetLocal(key)
	if err != nil || known {
		return v, v != nil, err
	}
	t := l.Base()
	if t == nil || !Committed(key) {
		return nil, false, nil
	}
	return t.Get(ctx, key)
}

// GetLocal looks only at the overlay. known tells whether the overlay decides; then a nil value means deleted.
func (l *Live) GetLocal(key []byte) (value []byte, known bool, err error) {
	l.mu.Lock()
	if p, ok := l.pendingOf(key); ok {
		l.mu.Unlock()
		return p.value, true, nil
	}
	if l.db == nil {
		l.mu.Unlock()
		return nil, false, nil
	}
	v := l.acquire()
	l.mu.Unlock()
	defer l.release(v)
	return getTxn(v.txn, key)
}

func (l *Live) pendingOf(key []byte) (pending, bool) {
	if p, ok := l.cur.m[string(key)]; ok {
		return p, true
	}
	for i := len(l.sealed) - 1; i >= 0; i-- {
		if p, ok := l.sealed[i].m[string(key)]; ok {
			return p, true
		}
	}
	return pending{}, false
}

func (l *Live) acquire() *view {
	l.view.refs++
	return l.view
}

func (l *Live) release(v *view) {
	l.mu.Lock()
	v.refs--
	last := v.refs == 0
	l.mu.Unlock()
	if last {
		v.txn.Discard()
	}
}

// getTxn reads a key: known is false when Badger has nothing for it.
func getTxn(txn *badger.Txn, key []byte) (value []byte, known bool, err error) {
	item, err := txn.Get(key)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read key %x: %w", key, err)
	case item.UserMeta() == tombstone:
		return nil, true, nil
	}
	value, err = item.ValueCopy(nil)
	if err != nil {
		return nil, false, fmt.Errorf("read key %x: %w", key, err)
	}
	if value == nil {
		value = []byte{}
	}
	return value, true, nil
}

func readUint(txn *badger.Txn, key []byte) (uint64, error) {
	v, known, err := getTxn(txn, key)
	if err != nil || !known {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("key %x: %w: %d bytes, want 8", key, ErrRecord, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// badgerLog sends Badger's own log to slog; its info lines are debug to us.
type badgerLog struct{ log *slog.Logger }

func (b badgerLog) Errorf(f string, a ...any)   { b.log.Error(fmt.Sprintf("badger: "+f, a...)) }
func (b badgerLog) Warningf(f string, a ...any) { b.log.Warn(fmt.Sprintf("badger: "+f, a...)) }
func (b badgerLog) Infof(f string, a ...any)    { b.log.Debug(fmt.Sprintf("badger: "+f, a...)) }
func (b badgerLog) Debugf(string, ...any)       {}

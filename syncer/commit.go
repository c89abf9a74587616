package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
)

// How a commit is made.
//
// Order of what becomes durable, and why: (1) chunks in packs, (2) the tree pages that point at them, in the same or
// later packs, (3) the index object that lets others find the chunks, (4) the commit object. Whoever sees (4) finds
// (1) and (2). A process that dies before (4) leaves objects nobody refers to, which garbage collection removes.
//
// Rejected: data and pages in different packs (a small commit would cost two puts instead of one), the commit put
// while the index is still under way (a chunk named by nobody's index is uploaded again by every other workspace).
//
// The put of the commit is the one step whose failure does not tell whether it happened. The commit is then kept as
// pending with all that settling it takes, and the next try begins with putting the very same body again: either the
// number is still free, or it holds our nonce, or we are fenced. At most one commit is ever in doubt.

// putTimeout bounds the last put, so that what was true before it (nobody newer) is still recent when it lands.
const putTimeout = 2 * time.Minute

// pendingCommit is a commit on the last steps of its way.
type pendingCommit struct {
	commit     Commit
	settlement Settlement
	made       time.Time
	put        bool // it is in the store; only the settlement is missing
}

// commit makes one commit of everything dirty. The caller has the turn.
func (w *Writer) commit(ctx context.Context, message string, patient bool) (*Commit, error) {
	w.begin(true)
	defer w.begin(false)
	if err := w.reigns(); err != nil {
		return nil, err
	}
	// What an earlier try left behind comes first: it is older than what is dirty now.
	if err := w.finishPending(ctx); err != nil {
		return nil, err
	}
	run := w.newRun(patient)
	defer run.close()
	// Freeze the live side, and read and chunk its files until all were at rest. Packs upload meanwhile.
	if err := run.prepare(ctx); err != nil {
		return nil, err
	}
	if run.plan.empty() {
		w.settled(run)
		head := w.headNow()
		return &head, nil
	}
	// Write the pages of the new tree.
	if err := run.apply(ctx); err != nil {
		return nil, err
	}
	if run.tree.Root().ID == w.base.Root().ID {
		return w.settleUnchanged(ctx, run)
	}
	// Chunks and pages durable.
	if err := run.packer.Flush(ctx); err != nil {
		return nil, fmt.Errorf("committing %q: %w", w.name, err)
	}
	// Index.
	if err := run.putIndex(ctx); err != nil {
		return nil, err
	}
	// The commit, and its settlement.
	w.pending = run.pending(message)
	if err := w.finishPending(ctx); err != nil {
		return nil, err
	}
	w.settled(run)
	head := w.headNow()
	return &head, nil
}

func (w *Writer) begin(committing bool) {
	w.done.Store(0)
	w.total.Store(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Committing = committing
}

// settleUnchanged ends a commit whose tree is the base: keys were dirty but have the values they had. What its files
// refer to is then what the base refers to, and durable.
func (w *Writer) settleUnchanged(ctx context.Context, run *commitRun) (*Commit, error) {
	head := w.headNow()
	if err := w.local.Settle(ctx, run.settlement(head, w.base)); err != nil {
		return nil, fmt.Errorf("settling %q at commit %d: %w", w.name, head.Number, err)
	}
	w.settled(run)
	return &head, nil
}

// settled keeps what the background loop and Status need to know of a finished commit.
func (w *Writer) settled(run *commitRun) {
	stats := run.packer.Stats()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = run.plan.live
	w.status.Unstable = len(run.plan.unstable)
	w.status.Packs += stats.Packs
	w.status.Uploaded += stats.StoredBytes
}

// finishPending brings the pending commit, if there is one, into the store and settles it.
func (w *Writer) finishPending(ctx context.Context) error {
	p := w.pending
	if p == nil {
		return nil
	}
	if !p.put {
		if w.o.Clock.Now().Sub(p.made) > w.o.PendingMax {
			if found, err := w.lookForPending(ctx, p); !found {
				return err
			}
		} else if err := w.putPending(ctx, p); err != nil {
			return err
		}
		p.put = true
		w.advance(p)
	}
	if err := w.local.Settle(ctx, p.settlement); err != nil {
		return fmt.Errorf("settling %q at commit %d: %w", w.name, p.commit.Number, err)
	}
	w.pending = nil
	return nil
}

// putPending puts the commit, having looked for a newer one if we were asleep.
func (w *Writer) putPending(ctx context.Context, p *pendingCommit) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if err := w.checkNewest(ctx); err != nil {
		return err
	}
	theirs, err := w.repo.putCommit(ctx, &p.commit)
	if errors.Is(err, blobs.ErrNotExist) { // the number was taken, and is free now: retention moves on without us
		w.contact = time.Time{}
	}
	if err != nil {
		return err
	}
	if theirs != nil {
		return w.fence(theirs)
	}
	return nil
}

// lookForPending is for a commit in doubt that is too old to be put again, because what it refers to may have been
// collected. It either is in the store, or it is forgotten: its content is still dirty and goes into the next one.
func (w *Writer) lookForPending(ctx context.Context, p *pendingCommit) (found bool, err error) {
	there, err := w.repo.At(ctx, w.name, p.commit.Number)
	switch {
	case errors.Is(err, blobs.ErrNotExist):
		w.log.Warn("giving up a commit that could not be put for too long", "workspace", w.name, "commit", p.commit.Number)
		w.pending = nil
		return false, nil
	case err != nil:
		return false, err
	case there.Nonce != p.commit.Nonce:
		return false, w.fence(there)
	}
	return true, nil
}

// checkNewest makes sure after a long silence that our head is still the newest commit: the number after it may be
// free only because retention removed what other writers had put there.
func (w *Writer) checkNewest(ctx context.Context) error {
	now := w.o.Clock.Now()
	if gap := now.Sub(w.contact); gap >= 0 && gap <= w.o.SleepFloor {
		return nil
	}
	return w.verify(ctx)
}

// verify compares our head with the newest commit, and fences us if it is another one. A pending commit of ours that
// made it counts as ours.
func (w *Writer) verify(ctx context.Context) error {
	ours := w.headNow()
	newest, err := w.repo.Head(ctx, w.name)
	switch {
	case errors.Is(err, ErrNoWorkspace):
		return w.fence(nil)
	case err != nil:
		return err
	case newest.Nonce == ours.Nonce:
	case w.pending != nil && newest.Nonce == w.pending.commit.Nonce:
	default:
		return w.fence(newest)
	}
	w.contact = w.o.Clock.Now()
	return nil
}

// advance makes a commit that is in the store our head and base.
func (w *Writer) advance(p *pendingCommit) {
	w.base, w.epoch, w.contact = p.settlement.Tree, p.commit.Epoch, w.o.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head = p.commit
	w.status.LastCommit = w.contact
	w.status.Commits++
}

// Takeover puts a commit with the same tree and the next epoch, so that whoever wrote before is fenced at once instead
// of when both next commit. Nothing dirty goes into it.
func (w *Writer) Takeover(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.turn }()
	if err := w.reigns(); err != nil {
		return err
	}
	if err := w.finishPending(ctx); err != nil {
		return err
	}
	head := w.headNow()
	c := Commit{
		Number: head.Number + 1, Parent: head.Number, Workspace: w.name, Epoch: head.Epoch + 1, Writer: w.o.Writer,
		Host: w.o.Host, Time: w.o.Clock.Now().UTC(), Root: head.Root, Nonce: newNonce(), Message: "takeover",
		Stats: CommitStats{Inodes: head.Stats.Inodes, Bytes: head.Stats.Bytes},
	}
	if head.Writer == w.o.Writer {
		c.Seq = head.Seq
	}
	// It settles no op: even what is in the head may not be settled here, if its writer ended before.
	w.pending = &pendingCommit{commit: c, made: w.o.Clock.Now(), settlement: Settlement{Commit: c, Tree: w.base}}
	return w.finishPending(ctx)
}

// pending turns a run whose chunks, pages and index are durable into the commit to put.
func (r *commitRun) pending(message string) *pendingCommit {
	w, stats := r.w, r.packer.Stats()
	head := w.headNow()
	c := Commit{
		Number: head.Number + 1, Parent: head.Number, Workspace: w.name, Epoch: w.epoch, Writer: w.o.Writer,
		Host: w.o.Host, Time: w.o.Clock.Now().UTC(), Root: r.tree.Root(), Seq: r.plan.seq, Nonce: newNonce(),
		Message: message, Unstable: len(r.plan.unstable),
		Stats: CommitStats{
			Inodes: r.plan.super.Inodes, Bytes: r.plan.super.Bytes, Changed: r.applied.Sets + r.applied.Deletes,
			Files: r.files, Read: r.read.Load(), Chunks: stats.Chunks, Packs: stats.Packs, Uploaded: stats.StoredBytes,
		},
	}
	return &pendingCommit{commit: c, settlement: r.settlement(c, r.tree), made: w.o.Clock.Now()}
}

func (r *commitRun) settlement(c Commit, tree *metadata.Tree) Settlement {
	s := Settlement{Commit: c, Seq: r.plan.seq, Tree: tree, Unstable: r.plan.unstable}
	for i := range r.plan.files {
		if f := &r.plan.files[i]; !f.unstable {
			s.Files = append(s.Files, f.SettledFile)
		}
	}
	return s
}

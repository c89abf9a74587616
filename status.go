package wsfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

// Status is a workspace at one moment.
type Status struct {
	Workspace string       `json:"workspace"`
	Store     string       `json:"store"`
	CacheDir  string       `json:"cache_dir"`
	ReadOnly  bool         `json:"read_only"` // opened so, or fenced
	Fenced    string       `json:"fenced,omitempty"`
	Head      CommitStatus `json:"head"`

	Inodes     uint64     `json:"inodes"`
	Bytes      uint64     `json:"bytes"`       // content that is not hole
	DirtyBytes int64      `json:"dirty_bytes"` // content not in the store yet
	DirtyOps   uint64     `json:"dirty_ops"`   // ops since the last commit
	DirtyLimit int64      `json:"dirty_limit"` // bytes
	CacheBytes int64      `json:"cache_bytes"` // clean content kept on this host
	CacheLimit int64      `json:"cache_limit"` // bytes
	Unstable   int        `json:"unstable"`    // files the last commit could not catch at rest
	Committing bool       `json:"committing"`
	Done       int64      `json:"done"`            // bytes of content read for the running commit
	Total      int64      `json:"total"`           // and to be read
	Commits    int64      `json:"commits"`         // made since the workspace was opened
	Packs      int64      `json:"packs"`           // uploaded since then
	Uploaded   int64      `json:"uploaded"`        // bytes uploaded since then
	Error      string     `json:"error,omitempty"` // why the last commit failed
	ErrorSince *time.Time `json:"error_since,omitempty"`
}

// CommitStatus names a commit.
type CommitStatus struct {
	Number uint64    `json:"number"`
	Epoch  uint64    `json:"epoch"`
	Writer string    `json:"writer"`
	Host   string    `json:"host"`
	Time   time.Time `json:"time"`
}

func commitStatus(c *syncer.Commit) CommitStatus {
	return CommitStatus{Number: c.Number, Epoch: c.Epoch, Writer: c.Writer, Host: c.Host, Time: c.Time}
}

// Status returns the workspace's state now; it asks nothing of the store.
func (w *Workspace) Status() Status {
	w.mu.Lock()
	super := w.super
	w.mu.Unlock()
	s := Status{Workspace: w.name, Store: w.StoreURL(), CacheDir: w.o.CacheDir, ReadOnly: w.ReadOnly(),
		Inodes: super.Inodes, Bytes: super.Bytes, DirtyBytes: w.dirtyBytes.Load(), DirtyLimit: w.o.DirtyLimit,
		CacheBytes: w.cleanCopies.Load(), CacheLimit: w.o.CacheSize}
	if w.packs != nil {
		s.CacheBytes += w.packs.Used()
	}
	if err := w.frozenErr.Load(); err != nil {
		s.Fenced = (*err).Error()
	}
	if w.writer == nil {
		s.Head = commitStatus(w.following.Load())
		return s
	}
	ws := w.writer.Status()
	s.Head, s.Unstable = commitStatus(&ws.Head), ws.Unstable
	s.DirtyOps = w.live.Pending()
	s.Committing, s.Done, s.Total = ws.Committing, ws.Done, ws.Total
	s.Commits, s.Packs, s.Uploaded = ws.Commits, ws.Packs, ws.Uploaded
	if ws.LastError != nil {
		s.Error, s.ErrorSince = ws.LastError.Error(), &ws.ErrorSince
	}
	return s
}

// Log returns the newest n commits (n <= 0: all), newest first.
func (w *Workspace) Log(ctx context.Context, n int) ([]syncer.Commit, error) {
	return w.repo.Commits(ctx, w.name, n)
}

// LeaseHolder tells who holds the workspace's lease; nil if nobody does.
func (w *Workspace) LeaseHolder(ctx context.Context) (*syncer.Holder, error) {
	h, live, err := w.repo.LeaseHolder(ctx, w.name)
	if err != nil || !live {
		return nil, err
	}
	return h, nil
}

// CheckOptions configures Check.
type CheckOptions struct {
	// ReadData reads and verifies every chunk; otherwise only that every chunk is where its reference says is checked.
	ReadData bool
	// Progress, if set, is told how many chunks have been looked at.
	Progress func(done, total int)
}

// CheckReport is what Check found.
type CheckReport struct {
	Metadata *metadata.Report `json:"metadata"`
	Chunks   int              `json:"chunks"` // distinct chunks referred to
	Packs    int              `json:"packs"`
	Problems []string         `json:"problems"` // all of them, metadata's too, in words
}

// Check proves the invariants of the metadata as it is now, and that the content is in the store. It may be used while
// the workspace is written; it then looks at one consistent state.
func (w *Workspace) Check(ctx context.Context, o CheckOptions) (*CheckReport, error) {
	refs := map[blobs.ID]chunkUse{}
	opts := metadata.CheckOptions{Refs: func(r blobs.Ref, ino Ino) { refs[r.ID] = chunkUse{r, ino} }}
	view, done, err := w.checkView(&opts)
	if err != nil {
		return nil, err
	}
	defer done()
	rep, err := metadata.Check(ctx, view, opts)
	if err != nil {
		return nil, fmt.Errorf("check %q: %w", w.name, err)
	}
	out := &CheckReport{Metadata: rep, Chunks: len(refs)}
	out.add("", rep)
	if opts.Uncommitted {
		base, err := metadata.Check(ctx, w.live.Base(), metadata.CheckOptions{})
		if err != nil {
			return nil, fmt.Errorf("check the last commit of %q: %w", w.name, err)
		}
		out.add("last commit: ", base)
	}
	if err := w.checkPages(ctx, out); err != nil {
		return nil, err
	}
	return out, w.checkChunks(ctx, refs, o, out)
}

func (r *CheckReport) add(where string, rep *metadata.Report) {
	for _, p := range rep.Problems {
		r.Problems = append(r.Problems, where+p.String())
	}
}

type chunkUse struct {
	ref blobs.Ref
	ino Ino
}

// checkView returns the state to check and what to call afterwards.
func (w *Workspace) checkView(opts *metadata.CheckOptions) (metadata.View, func(), error) {
	if w.readOnly {
		return w.live.Base(), func() {}, nil
	}
	fr, err := local{w}.Freeze(context.Background())
	if err != nil {
		return nil, nil, err
	}
	f := fr.(*frozen)
	opts.Local, opts.Uncommitted = true, w.live.Pending() > 0
	opts.StagingExists = func(number uint64, _ Ino) error {
		_, err := os.Stat(w.staging.path(number))
		return err
	}
	opts.ContentExists = func(ino Ino) error { _, err := f.Content(ino); return err }
	return f.View(w.live.Base()), f.Close, nil
}

// checkPages proves that every page of the committed tree can be read.
func (w *Workspace) checkPages(ctx context.Context, out *CheckReport) error {
	err := w.live.Base().Pages(ctx, func(blobs.Ref, int) error { return nil })
	if errors.Is(err, blobs.ErrDamaged) {
		out.Problems = append(out.Problems, fmt.Sprintf("committed tree: %v", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("check committed tree: %w", err)
	}
	return nil
}

// checkChunks proves that the chunks are in the store: by the packs' footers, or by reading them.
func (w *Workspace) checkChunks(ctx context.Context, refs map[blobs.ID]chunkUse, o CheckOptions, out *CheckReport) error {
	packs := map[blobs.PackID][]chunkUse{}
	for _, u := range refs {
		packs[u.ref.Pack] = append(packs[u.ref.Pack], u)
	}
	out.Packs = len(packs)
	done := 0
	for pack, uses := range packs {
		bad, err := w.checkPack(ctx, pack, uses, o.ReadData)
		if err != nil {
			return fmt.Errorf("check pack %s: %w", pack, err)
		}
		for _, b := range bad {
			out.Problems = append(out.Problems, fmt.Sprintf("pack %s: chunk %s of %s: %v", pack, b.use.ref.ID, w.pathName(ctx, b.use.ino), b.err))
		}
		if done += len(uses); o.Progress != nil {
			o.Progress(done, len(refs))
		}
	}
	return nil
}

type badChunk struct {
	use chunkUse
	err error
}

func (w *Workspace) checkPack(ctx context.Context, pack blobs.PackID, uses []chunkUse, read bool) ([]badChunk, error) {
	var bad []badChunk
	if read {
		for _, u := range uses {
			_, err := w.reader.Chunk(ctx, u.ref)
			switch {
			case errors.Is(err, blobs.ErrDamaged):
				bad = append(bad, badChunk{u, err})
			case err != nil:
				return nil, err
			}
		}
		return bad, nil
	}
	entries, err := blobs.ReadFooter(ctx, w.repo.Store(), pack)
	if err != nil && !errors.Is(err, blobs.ErrDamaged) && !errors.Is(err, blobs.ErrNotExist) {
		return nil, err
	}
	have := make(map[blobs.ID]blobs.PackEntry, len(entries))
	for _, e := range entries {
		have[e.ID] = e
	}
	for _, u := range uses {
		e, ok := have[u.ref.ID]
		switch {
		case err != nil:
			bad = append(bad, badChunk{u, err})
		case !ok || e.Offset != u.ref.Offset || e.Length != u.ref.Length || e.Raw != u.ref.Raw:
			bad = append(bad, badChunk{u, fmt.Errorf("%w: the pack's footer does not have it there", blobs.ErrDamaged)})
		}
	}
	return bad, nil
}

// pathName finds a path of an inode for a message, or says which inode it is.
func (w *Workspace) pathName(ctx context.Context, ino Ino) string {
	path, err := w.findPath(ctx, ino)
	if err != nil {
		return fmt.Sprintf("inode %d", ino)
	}
	return path
}

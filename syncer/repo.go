package syncer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"wsfs/blobs"
	"wsfs/metadata"
)

// RepoOptions configures OpenRepo; the zero value is good.
type RepoOptions struct {
	Clock Clock        // default WallClock
	Log   *slog.Logger // default: nothing is logged
}

// Repo is a pool: a store with a format, holding workspaces. It is safe for concurrent use and keeps no state.
type Repo struct {
	store  blobs.Store
	format Format
	clock  Clock
	log    *slog.Logger
}

func newRepo(store blobs.Store, f Format, o RepoOptions) *Repo {
	if o.Clock == nil {
		o.Clock = WallClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Repo{store: store, format: f, clock: o.Clock, log: o.Log}
}

// OpenRepo opens the pool in a store with one GET. Errors: ErrNotInitialised, ErrNewerFormat, ErrFormat, or the
// store's.
func OpenRepo(ctx context.Context, store blobs.Store, o RepoOptions) (*Repo, error) {
	f, err := readFormat(ctx, store)
	if err != nil {
		return nil, err
	}
	return newRepo(store, f, o), nil
}

// Format returns the pool's wsfs.json.
func (r *Repo) Format() Format { return r.format }

// Store returns the store the pool is in.
func (r *Repo) Store() blobs.Store { return r.store }

// Reader returns a new chunk reader over the pool's store; the caller closes it.
func (r *Repo) Reader(o blobs.ReaderOptions) *blobs.Reader { return blobs.NewReader(r.store, o) }

// Pages adapts a chunk reader to what trees read their pages through.
func Pages(r *blobs.Reader) metadata.PageReader { return pageReader{r} }

type pageReader struct{ r *blobs.Reader }

func (p pageReader) ReadPage(ctx context.Context, ref blobs.Ref) ([]byte, error) {
	return p.r.Chunk(ctx, ref)
}

// OpenTree returns the tree of a commit. It reads nothing; cache may be nil and may be shared.
func OpenTree(c *Commit, r *blobs.Reader, cache *metadata.PageCache) *metadata.Tree {
	return metadata.OpenTree(c.Root, Pages(r), cache)
}

// newNonce returns 130 random bits as text.
func newNonce() string { return strings.ToLower(rand.Text()) }

// putOnce is PutIfAbsent, or the nearest thing in a pool whose store has none and that promised a single writer.
func (r *Repo) putOnce(ctx context.Context, key string, body []byte) error {
	if r.format.Conditional || !r.format.SingleWriter {
		return r.store.PutIfAbsent(ctx, key, body)
	}
	switch _, err := r.store.Get(ctx, key, 0, 1); {
	case err == nil:
		return fmt.Errorf("%s: %w", key, blobs.ErrExist)
	case !errors.Is(err, blobs.ErrNotExist):
		return err
	}
	return r.store.Put(ctx, key, body)
}

// maxName is the longest workspace name, bytes.
const maxName = 63

// ValidName tells whether name may name a workspace: 1 to 63 bytes of [a-zA-Z0-9._-], not beginning with '.' or '-'.
// The error matches ErrName and says what is wrong.
func ValidName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", ErrName)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w %q: %d bytes, at most %d allowed", ErrName, name[:maxName]+"...", len(name), maxName)
	}
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("%w %q: %q is not allowed, only letters, digits, '.', '_' and '-'", ErrName, name, c)
		}
	}
	if name[0] == '.' || name[0] == '-' {
		return fmt.Errorf("%w %q: it begins with %q", ErrName, name, name[0])
	}
	return nil
}

const workspacesPrefix = "workspaces/"

func workspacePrefix(name string) string { return workspacesPrefix + name + "/" }
func commitsPrefix(name string) string   { return workspacePrefix(name) + "commits/" }

// Workspaces returns the names of the pool's workspaces in byte order of their keys, with one LIST each. What has no
// commit is not a workspace.
func (r *Repo) Workspaces(ctx context.Context) ([]string, error) {
	var names []string
	for after := ""; ; {
		page, err := r.store.List(ctx, workspacesPrefix, after, 1)
		if err != nil {
			return nil, fmt.Errorf("listing workspaces: %w", err)
		}
		if len(page) == 0 {
			return names, nil
		}
		name, rest, _ := strings.Cut(strings.TrimPrefix(page[0].Key, workspacesPrefix), "/")
		// "commits/" is the first thing under a workspace, and '0' is the byte after '/'.
		if strings.HasPrefix(rest, "commits/") && ValidName(name) == nil {
			names = append(names, name)
		}
		after = workspacesPrefix + name + "0"
		if rest == "" { // a stray object, not a directory: only this one is passed
			after = page[0].Key
		}
	}
}

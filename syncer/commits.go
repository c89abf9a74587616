package syncer

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"wsfs/blobs"
)

// Commit is one numbered durable state of a workspace.
type Commit struct {
	Number    uint64 // 1 for the first
	Parent    uint64 // number of the commit it was made from, 0 for the first
	Workspace string
	Epoch     uint64    // reign of writers; grows when another writer takes over
	Writer    string    // id of the cache directory it was made from; "" if none
	Host      string    // where it was made
	Time      time.Time // UTC, by the writer's clock
	Root      blobs.Ref // root page of the tree
	Seq       uint64    // the writer's journal sequence number the commit goes up to
	Nonce     string    // random: tells our own commit from another with the same number
	Stats     CommitStats
	Message   string
	Unstable  int // files that kept changing and are in the commit as they were before, or empty
}

// CommitStats are the sizes of a commit.
type CommitStats struct {
	Inodes   uint64 `json:"inodes"`   // inodes with at least one link
	Bytes    uint64 `json:"bytes"`    // allocated bytes of all files
	Changed  int64  `json:"changed"`  // tree keys set or removed
	Files    int64  `json:"files"`    // files whose content was read for this commit
	Read     int64  `json:"read"`     // bytes of content read
	Chunks   int64  `json:"chunks"`   // chunks added to the store, pages included
	Packs    int64  `json:"packs"`    // packs added to the store
	Uploaded int64  `json:"uploaded"` // bytes of chunks added, compressed
}

// commitJSON is the body of a commit object.
type commitJSON struct {
	Version   int         `json:"version"`
	Number    uint64      `json:"number"`
	Parent    uint64      `json:"parent"`
	Workspace string      `json:"workspace"`
	Epoch     uint64      `json:"epoch"`
	Writer    string      `json:"writer"`
	Host      string      `json:"host"`
	Time      time.Time   `json:"time"`
	Root      rootJSON    `json:"root"`
	Seq       uint64      `json:"seq"`
	Nonce     string      `json:"nonce"`
	Stats     CommitStats `json:"stats"`
	Message   string      `json:"message,omitempty"`
	Unstable  int         `json:"unstable,omitempty"`
}

type rootJSON struct {
	ID     string `json:"id"`
	Pack   string `json:"pack"`
	Offset uint32 `json:"offset"`
	Length uint32 `json:"length"`
	Raw    uint32 `json:"raw"`
}

// MarshalJSON writes the body of a commit object.
func (c Commit) MarshalJSON() ([]byte, error) {
	return json.Marshal(commitJSON{
		Version: FormatVersion, Number: c.Number, Parent: c.Parent, Workspace: c.Workspace, Epoch: c.Epoch,
		Writer: c.Writer, Host: c.Host, Time: c.Time, Seq: c.Seq, Nonce: c.Nonce, Stats: c.Stats, Message: c.Message,
		Unstable: c.Unstable,
		Root: rootJSON{ID: c.Root.ID.String(), Pack: c.Root.Pack.String(), Offset: c.Root.Offset,
			Length: c.Root.Length, Raw: c.Root.Raw},
	})
}

// UnmarshalJSON reads what MarshalJSON wrote. It fails with ErrNewerFormat or ErrFormat.
func (c *Commit) UnmarshalJSON(b []byte) error {
	var j commitJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if j.Version > FormatVersion {
		return fmt.Errorf("%w: commit of format %d, this program knows up to %d", ErrNewerFormat, j.Version, FormatVersion)
	}
	root := blobs.Ref{Raw: j.Root.Raw, Locator: blobs.Locator{Offset: j.Root.Offset, Length: j.Root.Length}}
	if err := unhex(root.ID[:], j.Root.ID); err != nil {
		return fmt.Errorf("%w: root chunk id: %w", ErrFormat, err)
	}
	if err := unhex(root.Pack[:], j.Root.Pack); err != nil {
		return fmt.Errorf("%w: root pack id: %w", ErrFormat, err)
	}
	if j.Version < 1 || j.Number == 0 || j.Nonce == "" {
		return fmt.Errorf("%w: version %d, number %d, nonce %q", ErrFormat, j.Version, j.Number, j.Nonce)
	}
	*c = Commit{Number: j.Number, Parent: j.Parent, Workspace: j.Workspace, Epoch: j.Epoch, Writer: j.Writer,
		Host: j.Host, Time: j.Time, Root: root, Seq: j.Seq, Nonce: j.Nonce, Stats: j.Stats, Message: j.Message,
		Unstable: j.Unstable}
	return nil
}

func unhex(dst []byte, s string) error {
	b, err := hex.DecodeString(s)
	if err != nil {
		return err
	}
	if len(b) != len(dst) {
		return fmt.Errorf("%d bytes, want %d", len(b), len(dst))
	}
	copy(dst, b)
	return nil
}

// CommitKey is the key of a commit object. The number is inverted, so that the newest comes first in a LIST.
func CommitKey(name string, number uint64) string {
	return fmt.Sprintf("%s%016x", commitsPrefix(name), math.MaxUint64-number)
}

func parseCommitKey(key string) (uint64, error) {
	s := key[strings.LastIndexByte(key, '/')+1:]
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || v == math.MaxUint64 {
		return 0, fmt.Errorf("commit key %q: %w", key, ErrFormat)
	}
	return math.MaxUint64 - v, nil
}

// newest returns the number of the newest commit with one LIST, 0 if there is none.
func (r *Repo) newest(ctx context.Context, name string) (uint64, error) {
	page, err := r.store.List(ctx, commitsPrefix(name), "", 1)
	if err != nil {
		return 0, fmt.Errorf("listing commits of %q: %w", name, err)
	}
	if len(page) == 0 {
		return 0, nil
	}
	return parseCommitKey(page[0].Key)
}

// Head returns the newest commit with one LIST and one GET; ErrNoWorkspace if there is none.
func (r *Repo) Head(ctx context.Context, name string) (*Commit, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	for range 3 { // what LIST showed may be gone when it is read: retention never takes the newest, but it may be old by then
		number, err := r.newest(ctx, name)
		if err != nil {
			return nil, err
		}
		if number == 0 {
			break
		}
		c, err := r.At(ctx, name, number)
		if !errors.Is(err, blobs.ErrNotExist) {
			return c, err
		}
	}
	return nil, fmt.Errorf("%w: %q in %s", ErrNoWorkspace, name, r.store.URL())
}

// At returns one commit with one GET; the error matches blobs.ErrNotExist if the workspace has no such commit (any
// more).
func (r *Repo) At(ctx context.Context, name string, number uint64) (*Commit, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	body, err := r.store.Get(ctx, CommitKey(name, number), 0, -1)
	if err != nil {
		return nil, fmt.Errorf("reading commit %d of %q: %w", number, name, err)
	}
	c := new(Commit)
	if err := json.Unmarshal(body, c); err != nil {
		return nil, fmt.Errorf("commit %d of %q: %w", number, name, jsonError(err))
	}
	if c.Number != number || c.Workspace != name {
		return nil, fmt.Errorf("commit %d of %q: %w: it says commit %d of %q", number, name, ErrFormat, c.Number, c.Workspace)
	}
	return c, nil
}

// jsonError makes sure that whatever was wrong with a JSON body matches ErrFormat or ErrNewerFormat.
func jsonError(err error) error {
	if errors.Is(err, ErrFormat) || errors.Is(err, ErrNewerFormat) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// Commits returns up to limit commits, newest first (limit <= 0: all). It costs one LIST per 1000 and one GET each.
func (r *Repo) Commits(ctx context.Context, name string, limit int) ([]Commit, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	var commits []Commit
	for after := ""; ; {
		want := 1000
		if limit > 0 {
			want = min(want, limit-len(commits))
		}
		page, err := r.store.List(ctx, commitsPrefix(name), after, want)
		if err != nil {
			return nil, fmt.Errorf("listing commits of %q: %w", name, err)
		}
		for _, o := range page {
			number, err := parseCommitKey(o.Key)
			if err != nil {
				return nil, err
			}
			c, err := r.At(ctx, name, number)
			if errors.Is(err, blobs.ErrNotExist) {
				continue // retention took it since the LIST
			}
			if err != nil {
				return nil, err
			}
			commits = append(commits, *c)
		}
		if len(page) < want || limit > 0 && len(commits) >= limit {
			break
		}
		after = page[len(page)-1].Key
	}
	if len(commits) == 0 {
		return nil, fmt.Errorf("%w: %q in %s", ErrNoWorkspace, name, r.store.URL())
	}
	return commits, nil
}

// putCommit puts a commit if its number is free. If it is not and the commit there is c itself (the reply to an earlier
// put was lost), that is success; else the commit there is returned.
func (r *Repo) putCommit(ctx context.Context, c *Commit) (theirs *Commit, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding commit %d of %q: %w", c.Number, c.Workspace, err)
	}
	err = r.putOnce(ctx, CommitKey(c.Workspace, c.Number), body)
	if err == nil {
		return nil, nil
	}
	if !errors.Is(err, blobs.ErrExist) {
		return nil, fmt.Errorf("putting commit %d of %q: %w", c.Number, c.Workspace, err)
	}
	there, err := r.At(ctx, c.Workspace, c.Number)
	if err != nil {
		return nil, err
	}
	if there.Nonce == c.Nonce {
		return nil, nil
	}
	return there, nil
}

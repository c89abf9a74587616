package syncer

import (
	"context"
	"fmt"

	"wsfs/blobs"
)

// Fork makes a workspace whose first commit has the tree of another workspace's commit: nothing is copied, whatever the
// tree holds. blobs.ErrExist if there is a workspace of that name.
func (r *Repo) Fork(ctx context.Context, from *Commit, name string) (*Commit, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	switch number, err := r.newest(ctx, name); {
	case err != nil:
		return nil, err
	case number != 0:
		return nil, fmt.Errorf("workspace %q: %w: it is at commit %d", name, blobs.ErrExist, number)
	}
	c := &Commit{Number: 1, Workspace: name, Epoch: 1, Host: hostname(), Time: r.clock.Now().UTC(), Root: from.Root,
		Nonce: newNonce(), Stats: CommitStats{Inodes: from.Stats.Inodes, Bytes: from.Stats.Bytes},
		Message: fmt.Sprintf("forked from commit %d of %s", from.Number, from.Workspace)}
	theirs, err := r.putCommit(ctx, c)
	if err != nil {
		return nil, err
	}
	if theirs != nil {
		return nil, fmt.Errorf("workspace %q: %w: it is at commit %d", name, blobs.ErrExist, theirs.Number)
	}
	return c, nil
}

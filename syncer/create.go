package syncer

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"wsfs/blobs"
	"wsfs/metadata"
)

// Create makes a workspace: commit 1, holding an empty root directory (mode 0755) that belongs to the user and group
// of this process. blobs.ErrExist if there is one of that name.
func (r *Repo) Create(ctx context.Context, name string) (*Commit, error) {
	if err := ValidName(name); err != nil {
		return nil, err
	}
	// Retention may have removed commit 1 of a workspace that lives: PutIfAbsent alone does not protect it.
	switch number, err := r.newest(ctx, name); {
	case err != nil:
		return nil, err
	case number != 0:
		return nil, fmt.Errorf("workspace %q: %w: it is at commit %d", name, blobs.ErrExist, number)
	}
	root, err := r.writeEmptyTree(ctx)
	if err != nil {
		return nil, fmt.Errorf("creating workspace %q: %w", name, err)
	}
	c := &Commit{Number: 1, Workspace: name, Epoch: 1, Host: hostname(), Time: r.clock.Now().UTC(), Root: root,
		Nonce: newNonce(), Stats: CommitStats{Inodes: 1}}
	theirs, err := r.putCommit(ctx, c)
	if err != nil {
		return nil, err
	}
	if theirs != nil {
		return nil, fmt.Errorf("workspace %q: %w: it is at commit %d", name, blobs.ErrExist, theirs.Number)
	}
	return c, nil
}

// writeEmptyTree makes the tree of a new workspace durable.
func (r *Repo) writeEmptyTree(ctx context.Context) (blobs.Ref, error) {
	now := r.clock.Now().UnixNano()
	root := metadata.Inode{
		Ino: metadata.RootIno, Mode: syscall.S_IFDIR | 0o755, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		Nlink: 2, Parent: metadata.RootIno, Atime: now, Mtime: now, Ctime: now, Btime: now,
	}
	changes := func(yield func(metadata.Change, error) bool) {
		_ = yield(metadata.Change{Key: metadata.InodeKey(root.Ino), Value: metadata.AppendInode(nil, &root)}, nil) &&
			yield(metadata.Change{Key: metadata.SuperKey(),
				Value: metadata.AppendSuper(nil, metadata.Super{NextIno: metadata.RootIno + 1, Inodes: 1})}, nil)
	}
	packer := blobs.NewPacker(r.store, blobs.PackerOptions{Uploads: 1})
	defer packer.Close()
	tree, _, err := metadata.OpenTree(blobs.Ref{}, nil, nil).Apply(ctx, pageWriter{packer}, changes)
	if err != nil {
		return blobs.Ref{}, err
	}
	return tree.Root(), packer.Flush(ctx)
}

// pageWriter puts tree pages into packs.
type pageWriter struct{ packer *blobs.Packer }

func (p pageWriter) WritePage(ctx context.Context, content []byte) (blobs.Ref, error) {
	return p.packer.Add(ctx, blobs.KindPage, blobs.IDOf(content), content)
}

// hostname is what commits and leases name this host by.
func hostname() string {
	if h, err := os.Hostname(); err == nil {
		return h
	}
	return "unknown"
}

package fusefs

import (
	"context"

	"wsfs"
)

// Mount mounts ws on the directory dir. The kernel is told what path-level operations change from here on, until the end of
// Serve. The mount answers when Serve runs; ws must stay open until it has returned.
//
// Errors: no FUSE on this host, no privilege to mount, passthrough demanded and not to be had (each says which), or a mount
// point that is no directory.
func Mount(ws *wsfs.Workspace, dir string, o Options) (*Server, error) {
	o.ReadOnly = o.ReadOnly || ws.ReadOnly()
	s, err := mount(workspaceCore{ws}, dir, o)
	if err != nil {
		return nil, err
	}
	ws.SetKernel(s.cache)
	closed := s.fs.onUnmount
	s.fs.onUnmount = func() {
		ws.SetKernel(nil)
		closed()
	}
	return s, nil
}

// workspaceCore is a workspace whose handles are the interface of this package.
type workspaceCore struct{ *wsfs.Workspace }

// Create makes and opens a file.
func (c workspaceCore) Create(ctx context.Context, parent wsfs.Ino, name string, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
	a, h, err := c.Workspace.Create(ctx, parent, name, mode, own, o)
	if err != nil {
		return a, nil, err
	}
	return a, h, nil
}

// Tmpfile makes and opens a file without a name.
func (c workspaceCore) Tmpfile(ctx context.Context, parent wsfs.Ino, mode uint32, own wsfs.Owner, o wsfs.OpenOptions) (wsfs.Attr, handle, error) {
	a, h, err := c.Workspace.Tmpfile(ctx, parent, mode, own, o)
	if err != nil {
		return a, nil, err
	}
	return a, h, nil
}

// OpenInode opens a file.
func (c workspaceCore) OpenInode(ctx context.Context, ino wsfs.Ino, o wsfs.OpenOptions) (handle, error) {
	h, err := c.Workspace.OpenInode(ctx, ino, o)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// CopyRange copies between two open files.
func (c workspaceCore) CopyRange(ctx context.Context, src handle, off int64, dst handle, dstOff, n int64) (int64, error) {
	return src.(*wsfs.Handle).CopyRange(ctx, off, dst.(*wsfs.Handle), dstOff, n)
}

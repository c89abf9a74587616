package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"wsfs"
	"wsfs/api"
)

// Connection is a client of a workspace: of its daemon, or of the workspace opened in this process.
type Connection struct {
	*api.Client
	Live   *Live // the daemon; nil without one
	opened *Opened
}

// Connect finds the workspace that name means and the daemon that has it open; without one it opens the workspace in
// this process. reader tells that the command changes nothing. name is a path inside a mount, a workspace's name, or
// STORE#NAME; "" is $WSFS_WORKSPACE, else the mount that holds the working directory.
func Connect(ctx context.Context, name string, reader bool, version string) (*Connection, error) {
	live, target, err := Resolve(name)
	if err != nil {
		return nil, err
	}
	if live != nil {
		return &Connection{Client: api.Dial(live.Socket), Live: live}, nil
	}
	opened, err := OpenWorkspace(ctx, *target, OpenOptions{Reader: reader, LockWait: lockWait, Workspace: wsfs.Options{}})
	if err != nil {
		return nil, err
	}
	h := api.NewHandler(opened.Workspace, api.Options{Classify: Classify, Version: version})
	return &Connection{Client: api.InProcess(h), opened: opened}, nil
}

// lockWait is how long a command without a daemon waits for another one to finish.
const lockWait = 10 * time.Second

// Close ends the connection; a workspace opened in this process is committed first.
func (c *Connection) Close(ctx context.Context) error {
	if c.opened == nil {
		return nil
	}
	return c.opened.Close(ctx)
}

// Resolve finds what a name means: a live daemon, or else a target to open.
func Resolve(name string) (*Live, *Target, error) {
	if name == "" {
		name = os.Getenv("WSFS_WORKSPACE")
	}
	if name == "" {
		return here()
	}
	if _, _, explicit := CutTarget(name); explicit {
		return resolveTarget(name)
	}
	if strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".." {
		return resolvePath(name)
	}
	found, err := FindName(name)
	if err != nil {
		return nil, nil, err
	}
	if len(found) > 1 {
		return ambiguous(name, found)
	}
	if len(found) == 1 {
		return &found[0], nil, nil
	}
	if live, err := FindMount(name); err != nil || live != nil {
		return live, nil, err
	}
	return resolveTarget(name)
}

func here() (*Live, *Target, error) {
	dir, err := os.Getwd()
	if err == nil {
		var live *Live
		if live, err = FindMount(dir); live != nil {
			return live, nil, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, nil, Usagef("no workspace named: use -w DIR, -w NAME or -w STORE#NAME, set WSFS_WORKSPACE, or change into a mount")
}

// ambiguous prefers the default store's workspace among several of one name.
func ambiguous(name string, found []Live) (*Live, *Target, error) {
	if t, err := ParseTarget(name); err == nil {
		if live, err := FindTarget(t); err != nil || live != nil {
			return live, nil, err
		}
	}
	all := make([]string, len(found))
	for i, l := range found {
		all[i] = l.Store + "#" + l.Workspace
	}
	return nil, nil, Usagef("workspace %q is open from several stores; say which: %s", name, strings.Join(all, ", "))
}

func resolveTarget(name string) (*Live, *Target, error) {
	t, err := ParseTarget(name)
	if err != nil {
		return nil, nil, err
	}
	live, err := FindTarget(t)
	return live, &t, err
}

func resolvePath(name string) (*Live, *Target, error) {
	live, err := FindMount(name)
	if err == nil && live == nil {
		err = NotFoundf("no live mount of a workspace holds %s", name)
	}
	return live, nil, err
}

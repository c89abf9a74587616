package syncer

import (
	"errors"
	"fmt"
	"time"
)

// Met when a pool is opened or initialised.
var (
	// ErrNotInitialised: the store has no wsfs.json.
	ErrNotInitialised = errors.New("store is not initialised for wsfs")
	// ErrNewerFormat: the store was written by a newer wsfs.
	ErrNewerFormat = errors.New("store has a newer format")
	// ErrConditional: the store does not keep one of several concurrent conditional puts apart.
	ErrConditional = errors.New("store has no working conditional put")
	// ErrFormat: an object of the syncer cannot be decoded; it is damaged.
	ErrFormat = errors.New("malformed object")
)

// Met when a workspace is named.
var (
	// ErrName: the workspace name is not allowed.
	ErrName = errors.New("bad workspace name")
	// ErrNoWorkspace: the pool has no commit of a workspace of that name.
	ErrNoWorkspace = errors.New("no such workspace")
)

// Met while writing.
var (
	// ErrHeld: another writer holds the lease. The error is a *HeldError.
	ErrHeld = errors.New("workspace is in use")
	// ErrFenced: another writer has put the next commit. The error is a *FencedError.
	ErrFenced = errors.New("fenced by another writer")
)

// HeldError tells who holds the lease of a workspace.
type HeldError struct {
	Workspace string
	Holder    string // label, usually user@host
	Host      string
	PID       int
	Writer    string
	Age       time.Duration // since the holder last renewed it, by our clock; never negative
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("workspace %q is in use by %s (host %s, pid %d), which last showed itself %s ago",
		e.Workspace, e.Holder, e.Host, e.PID, e.Age.Round(time.Second))
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError tells which commit ended our reign. Everything local is kept.
type FencedError struct {
	Workspace string
	Ours      uint64 // number of the last commit that was ours or that we started from
	Theirs    Commit // zero if the workspace is gone
}

func (e *FencedError) Error() string {
	if e.Theirs.Number == 0 {
		return fmt.Sprintf("workspace %q was removed from the store while we were at commit %d", e.Workspace, e.Ours)
	}
	return fmt.Sprintf("workspace %q: %s on host %q made commit %d (epoch %d) while we were at commit %d",
		e.Workspace, e.Theirs.Writer, e.Theirs.Host, e.Theirs.Number, e.Theirs.Epoch, e.Ours)
}

// Is matches ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

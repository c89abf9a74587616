package api

import (
	"context"
	"time"

	"wsfs"
)

// Status is the state of a workspace and of the process that has it open.
type Status struct {
	wsfs.Status
	Mount   Mount  `json:"mount"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Lease   *Lease `json:"lease,omitempty"` // only if asked for
}

// Lease is who holds a workspace for writing, as the store says.
type Lease struct {
	Holder  string    `json:"holder,omitempty"` // empty if nobody does
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Epoch   uint64    `json:"epoch,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
	Error   string    `json:"error,omitempty"` // why it is not known
}

// leaseWait is how long status waits for the store's answer about the lease.
const leaseWait = 2 * time.Second

func (s *server) lease(ctx context.Context) *Lease {
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	h, err := s.w.LeaseHolder(ctx)
	switch {
	case err != nil:
		return &Lease{Error: err.Error()}
	case h == nil:
		return &Lease{}
	}
	return &Lease{Holder: h.Holder, Host: h.Host, PID: h.PID, Epoch: h.Epoch, Renewed: h.Renewed}
}

// Commit is one durable state of the workspace.
type Commit struct {
	Number   uint64    `json:"number"`
	Parent   uint64    `json:"parent"`
	Epoch    uint64    `json:"epoch"`
	Time     time.Time `json:"time"`
	Host     string    `json:"host,omitempty"`
	Writer   string    `json:"writer,omitempty"`
	Message  string    `json:"message,omitempty"`
	Inodes   uint64    `json:"inodes"`
	Bytes    uint64    `json:"bytes"`    // content that is not hole
	Uploaded int64     `json:"uploaded"` // bytes of chunks this commit added, compressed
	Unstable int       `json:"unstable,omitempty"`
}

// Log is the answer of /v1/log.
type Log struct {
	Commits []Commit `json:"commits"`
}

// CheckEvent is one line of a check: progress, or last the report or an error.
type CheckEvent struct {
	Progress *CheckProgress    `json:"progress,omitempty"`
	Report   *wsfs.CheckReport `json:"report,omitempty"`
	Error    *Error            `json:"error,omitempty"`
}

// CheckProgress is how far a check is, in chunks.
type CheckProgress struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

package api

import (
	"context"
	"net/http"
	"os"
	"syscall"
	"time"

	"wsfs"
)

// sync commits everything and answers the commit.
func (s *server) sync(w http.ResponseWriter, r *http.Request, q query) error {
	ctx := r.Context()
	if d := q.duration("timeout"); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	c, err := s.w.Commit(ctx)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, Commit{Number: c.Number, Parent: c.Parent, Epoch: c.Epoch, Time: c.Time, Host: c.Host, Writer: c.Writer,
		Message: c.Message, Inodes: c.Stats.Inodes, Bytes: c.Stats.Bytes, Uploaded: c.Stats.Uploaded, Unstable: c.Unstable})
	return nil
}

func (s *server) log(w http.ResponseWriter, r *http.Request, q query) error {
	commits, err := s.w.Log(r.Context(), int(q.int("n", 20)))
	if err != nil {
		return err
	}
	answer := Log{Commits: []Commit{}}
	for _, c := range commits {
		answer.Commits = append(answer.Commits, Commit{Number: c.Number, Parent: c.Parent, Epoch: c.Epoch, Time: c.Time, Host: c.Host, Writer: c.Writer,
			Message: c.Message, Inodes: c.Stats.Inodes, Bytes: c.Stats.Bytes, Uploaded: c.Stats.Uploaded, Unstable: c.Unstable})
	}
	reply(w, http.StatusOK, answer)
	return nil
}

func (s *server) df(w http.ResponseWriter, r *http.Request, _ query) error {
	f, err := s.w.Statfs(r.Context())
	if err != nil {
		return pathError("statfs", "/", err)
	}
	reply(w, http.StatusOK, Space{Total: f.Total, Free: f.Free, Avail: f.Avail, Files: f.Files, FreeFiles: f.FreeFiles})
	return nil
}

func (s *server) status(w http.ResponseWriter, r *http.Request, q query) error {
	st := Status{Status: s.w.Status(), Mount: s.o.Mount, PID: os.Getpid(), Version: s.o.Version}
	if s.o.Requests != nil {
		st.Mount.Requests = s.o.Requests()
	}
	if q.bool("lease") {
		st.Lease = s.lease(r.Context())
	}
	reply(w, http.StatusOK, st)
	return nil
}

// stop ends the daemon and answers each step as it happens; the last line has state "done" or an error.
func (s *server) stop(w http.ResponseWriter, r *http.Request, q query) error {
	if s.o.Stop == nil {
		return pathError("stop", "/", syscall.EOPNOTSUPP)
	}
	out := newLines(w)
	// A client that goes away must not cut the last commit short: its own wait is a parameter.
	err := s.o.Stop(context.WithoutCancel(r.Context()), StopOptions{Wait: q.duration("wait"), Lazy: q.bool("lazy")}, func(e StopEvent) {
		if out.put(e) == nil {
			out.flush()
		}
	})
	last := StopEvent{State: "done"}
	if err != nil {
		last = StopEvent{State: "failed", Error: s.asError(err)}
	}
	_ = out.put(last) // the client may be gone; the daemon ends either way
	out.flush()
	return nil
}

// progressEvery is how often a long check tells where it is.
const progressEvery = 200 * time.Millisecond

// check answers progress lines and last the report.
func (s *server) check(w http.ResponseWriter, r *http.Request, q query) error {
	out := newLines(w)
	var told time.Time
	report, err := s.w.Check(r.Context(), wsfs.CheckOptions{ReadData: q.bool("read_data"), Progress: func(done, total int) {
		if now := time.Now(); now.Sub(told) >= progressEvery {
			told = now
			if out.put(CheckEvent{Progress: &CheckProgress{done, total}}) == nil {
				out.flush()
			}
		}
	}})
	last := CheckEvent{}
	if err != nil {
		last.Error = s.asError(err)
	} else {
		last.Report = report
	}
	return out.put(last)
}

package syncer

import (
	"context"
	"errors"
	"time"
)

// DefaultFollow is how often Follow looks for a newer commit.
const DefaultFollow = time.Second

// Follow calls fn with the head of a workspace and then with every newer head it sees (commits in between may be passed
// over), looking once every so often (0: DefaultFollow) with one LIST. It returns what fn returned if that is an
// error, an error matching ErrNoWorkspace or ErrNewerFormat, or the end of ctx. While the store is in trouble it keeps
// trying, with pauses that grow to a minute, and logs the beginning and the end of the trouble.
func Follow(ctx context.Context, repo *Repo, name string, every time.Duration, fn func(*Commit) error) error {
	if every <= 0 {
		every = DefaultFollow
	}
	var seen uint64
	var backoff backoff
	for {
		next, err := repo.newer(ctx, name, seen)
		wait := every
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrNoWorkspace), errors.Is(err, ErrNewerFormat), errors.Is(err, ErrName):
			return err
		case err != nil:
			if backoff.tries == 0 {
				repo.log.Warn("following is in trouble", "workspace", name, "error", err)
			}
			wait = max(backoff.next(), every)
		default:
			if backoff.tries > 0 {
				repo.log.Info("following works again", "workspace", name)
			}
			backoff.reset()
		}
		if next != nil {
			seen = next.Number
			if err := fn(next); err != nil {
				return err
			}
		}
		if err := pause(ctx, repo.clock, wait); err != nil {
			return err
		}
	}
}

// newer returns the head if its number is greater than seen, nil if it is not.
func (r *Repo) newer(ctx context.Context, name string, seen uint64) (*Commit, error) {
	if seen > 0 {
		number, err := r.newest(ctx, name)
		if err != nil || number != 0 && number <= seen {
			return nil, err
		}
	}
	return r.Head(ctx, name)
}

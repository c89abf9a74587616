package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// DestroyReport tells what Destroy removed, or would remove.
type DestroyReport struct {
	Workspace string
	Commits   int
	Snapshots int
	Objects   int        // all objects of the workspace, commits and snapshots included
	Head      Commit     // the newest commit
	Held      *HeldError // a live lease; Destroy refuses while there is one
	DryRun    bool       // nothing was removed
}

// Destroy removes a workspace from the pool: lease and snapshots first, then the commits, oldest first, so that what
// is left of an interrupted Destroy still opens at the newest commit. Packs stay until garbage collection finds that
// nothing refers to them. It refuses with a *HeldError while somebody holds the lease. With dryRun it only reports.
func (r *Repo) Destroy(ctx context.Context, name string, dryRun bool) (DestroyReport, error) {
	report := DestroyReport{Workspace: name, DryRun: dryRun}
	head, err := r.Head(ctx, name)
	if err != nil {
		return report, err
	}
	report.Head = *head
	if held, err := r.holder(ctx, name); err == nil && held.live(r.clock.Now()) {
		report.Held = held.heldError(name, r.clock.Now())
	} else if err != nil && !errors.Is(err, errNoLease) {
		return report, err
	}
	commits, others, err := r.objects(ctx, name)
	if err != nil {
		return report, err
	}
	report.Commits, report.Objects = len(commits), len(commits)+len(others)
	for _, key := range others {
		if strings.HasPrefix(key, workspacePrefix(name)+"snapshots/") {
			report.Snapshots++
		}
	}
	if dryRun {
		return report, nil
	}
	if report.Held != nil {
		return report, report.Held
	}
	for i := len(commits) - 1; i >= 0; i-- {
		others = append(others, commits[i])
	}
	for _, key := range others {
		if err := r.store.Delete(ctx, key); err != nil {
			return report, fmt.Errorf("destroying workspace %q: deleting %s: %w", name, key, err)
		}
	}
	return report, nil
}

// objects lists a workspace's commits, newest first, and its other objects.
func (r *Repo) objects(ctx context.Context, name string) (commits, others []string, err error) {
	for after := ""; ; {
		page, err := r.store.List(ctx, workspacePrefix(name), after, 1000)
		if err != nil {
			return nil, nil, fmt.Errorf("listing workspace %q: %w", name, err)
		}
		for _, o := range page {
			if strings.HasPrefix(o.Key, commitsPrefix(name)) {
				commits = append(commits, o.Key)
			} else {
				others = append(others, o.Key)
			}
			after = o.Key
		}
		if len(page) < 1000 {
			return commits, others, nil
		}
	}
}

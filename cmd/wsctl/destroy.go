package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
	"wsfs/syncer"
)

func destroyCommand(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "destroy [STORE#]WORKSPACE",
		Short: "Remove a workspace and its history from its store (a dry run without --yes)",
		Long: cli.Long(`Shows what would go; with --yes it goes: every commit and snapshot of the workspace, and its state in this user's
cache directory. Refused while anybody has the workspace open.`),
		Args: cli.Args(1, 1, "[STORE#]WORKSPACE"),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := cli.ParseTarget(args[0])
			if err != nil {
				return err
			}
			return runDestroy(c.Context(), a, t, yes)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "really do it")
	return c
}

func runDestroy(ctx context.Context, a *app, t cli.Target, yes bool) error {
	live, err := cli.FindTarget(t)
	if err != nil {
		return err
	}
	if live != nil && yes {
		return cli.InUsef("workspace %s is open in process %d of this host; unmount it first", t, live.PID)
	}
	repo, err := openRepo(ctx, t.Store)
	if err != nil {
		return err
	}
	r, err := repo.Destroy(ctx, t.Name, !yes)
	if err != nil {
		return err
	}
	if yes {
		if err := removeCache(t); err != nil {
			return err
		}
	}
	return printDestroy(a, t, r)
}

func removeCache(t cli.Target) error {
	dir, err := t.CacheDir()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("the workspace is gone from its store, but not from this host: %w", err)
	}
	return nil
}

func printDestroy(a *app, t cli.Target, r syncer.DestroyReport) error {
	if a.json {
		out := map[string]any{"workspace": t.String(), "dry_run": r.DryRun, "commits": r.Commits, "snapshots": r.Snapshots,
			"objects": r.Objects, "inodes": r.Head.Stats.Inodes, "bytes": r.Head.Stats.Bytes}
		if r.Held != nil {
			out["held_by"] = r.Held.Holder
		}
		return a.print(out)
	}
	word := "destroyed"
	if r.DryRun {
		word = "would destroy"
	}
	fmt.Fprintf(a.out, "%s %s: %d commits, %d snapshots, %d objects; the newest, of %s, has %d files and %sB\n", word, t,
		r.Commits, r.Snapshots, r.Objects, r.Head.Time.Local().Format(time.DateTime), r.Head.Stats.Inodes, cli.Size(int64(r.Head.Stats.Bytes)))
	if r.Held != nil {
		fmt.Fprintf(a.out, "it is in use: %v\n", r.Held)
	}
	if r.DryRun {
		fmt.Fprintln(a.out, "nothing was changed; add --yes to do it")
	}
	return nil
}

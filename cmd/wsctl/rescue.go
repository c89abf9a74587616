package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
	"wsfs/syncer"
)

func rescueCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rescue [STORE#]WORKSPACE NEW-NAME",
		Short: "Make the unsynced work of a fenced workspace a workspace of its own",
		Long: cli.Long(`When another writer has taken a workspace over, work of this host that was not in the store yet stays in its cache
directory. This makes a fork of the commit that work was done on, with the work in it, as workspace NEW-NAME of the
same store. Afterwards this host can open the old workspace again.`),
		Args: cli.Args(2, 2, "[STORE#]WORKSPACE NEW-NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := cli.ParseTarget(args[0])
			if err != nil {
				return err
			}
			if err := syncer.ValidName(args[1]); err != nil {
				return cli.Usagef("%v", err)
			}
			return runRescue(c.Context(), a, t, args[1])
		},
	}
}

func runRescue(ctx context.Context, a *app, t cli.Target, name string) error {
	commit, err := cli.RescueWorkspace(ctx, t, name)
	if err != nil {
		return err
	}
	to := cli.Target{Store: t.Store, Name: name}
	if a.json {
		return a.print(map[string]any{"workspace": to.String(), "commit": commit.Number, "inodes": commit.Stats.Inodes})
	}
	_, err = fmt.Fprintf(a.out, "rescued as %s, commit %d: %d files\n", to, commit.Number, commit.Stats.Inodes)
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"wsfs/blobs"
	"wsfs/blobs/open"
	"wsfs/internal/cli"
	"wsfs/syncer"
)

func initCommand(a *app) *cobra.Command {
	var o initFlags
	c := &cobra.Command{
		Use:   "init STORE[#WORKSPACE]",
		Short: "Prepare a store, and make a workspace in it",
		Long: cli.Long(`Prepares a store for wsfs if it is not yet, and makes the workspace if one is named. Before a store is trusted, 16
parallel conditional puts must have exactly one winner; a store that fails this is refused, unless --single-writer
promises that no workspace in it is ever open twice.`),
		Args: cli.Args(1, 1, "STORE[#WORKSPACE]"),
		RunE: func(c *cobra.Command, args []string) error {
			store, name, err := o.validate(args[0])
			if err != nil {
				return err
			}
			return runInit(c.Context(), a, o, store, name)
		},
	}
	c.Flags().BoolVar(&o.singleWriter, "single-writer", false, "accept a store without working conditional puts")
	c.Flags().BoolVar(&o.createBucket, "create-bucket", false, "make the bucket if it does not exist (a directory always is)")
	return c
}

type initFlags struct{ singleWriter, createBucket bool }

// validate splits the argument; name is "" where only the store is to be prepared.
func (o initFlags) validate(arg string) (store, name string, err error) {
	store, name, explicit := cli.CutTarget(arg)
	if !explicit {
		store, name = arg, ""
	} else if err := syncer.ValidName(name); err != nil {
		return "", "", cli.Usagef("%v", err)
	}
	store, err = cli.CanonicalStore(store)
	return store, name, err
}

func runInit(ctx context.Context, a *app, o initFlags, store, name string) error {
	s, err := cli.Reach(ctx, store, o.createBucket || strings.HasPrefix(store, "dir:"))
	if err != nil {
		return err
	}
	repo, err := syncer.Init(ctx, s, syncer.InitOptions{SingleWriter: o.singleWriter})
	fresh := err == nil
	if errors.Is(err, blobs.ErrExist) && name != "" {
		repo, err = syncer.OpenRepo(ctx, s, syncer.RepoOptions{})
	}
	if err != nil {
		return err
	}
	out := struct {
		Store     string `json:"store"`
		Pool      string `json:"pool"`
		Fresh     bool   `json:"fresh"` // the store was not prepared before
		Workspace string `json:"workspace,omitempty"`
	}{s.URL(), repo.Format().Pool, fresh, name}
	if name != "" {
		if _, err := repo.Create(ctx, name); err != nil {
			return err
		}
	}
	if a.json {
		return a.print(out)
	}
	if fresh {
		fmt.Fprintf(a.out, "store %s is ready (pool %s)\n", out.Store, out.Pool)
	}
	if name != "" {
		fmt.Fprintf(a.out, "workspace %s#%s is ready\n", out.Store, name)
	}
	return nil
}

// openRepo opens the pool of a store for a command that needs no workspace.
func openRepo(ctx context.Context, store string) (*syncer.Repo, error) {
	s, err := cli.Reach(ctx, store, false)
	if err != nil {
		return nil, err
	}
	if _, err := syncer.OpenRepo(ctx, s, syncer.RepoOptions{}); err != nil {
		return nil, cli.ExplainStore(store, err)
	}
	// It answered: from here on it may take its time.
	long, err := open.Store(ctx, store, open.Options{})
	if err != nil {
		return nil, err
	}
	repo, err := syncer.OpenRepo(ctx, long, syncer.RepoOptions{})
	return repo, cli.ExplainStore(store, err)
}

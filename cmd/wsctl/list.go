package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
	"wsfs/syncer"
)

func listCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [STORE]",
		Short: "List the workspaces of a store (default: the embedded one)",
		Long:  cli.Long("Lists the workspaces of a store with their newest commit and who holds them."),
		Args:  cli.Args(0, 1, "[STORE]"),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := storeArgument(args)
			if err != nil {
				return err
			}
			return runList(c.Context(), a, store)
		},
	}
}

func storeArgument(args []string) (string, error) {
	if len(args) == 0 {
		return cli.DefaultStore()
	}
	return cli.CanonicalStore(args[0])
}

// listed is one workspace of a store.
type listed struct {
	Name   string    `json:"name"`
	Commit uint64    `json:"commit"`
	Time   time.Time `json:"time"`
	Inodes uint64    `json:"inodes"`
	Bytes  uint64    `json:"bytes"`
	Holder string    `json:"holder,omitempty"`
	Mount  string    `json:"mount,omitempty"` // on this host
}

func runList(ctx context.Context, a *app, store string) error {
	repo, err := openRepo(ctx, store)
	if err != nil {
		return err
	}
	names, err := repo.Workspaces(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	if !a.json && len(names) > 0 {
		fmt.Fprintln(table, "NAME\tCOMMIT\tTIME\tFILES\tSIZE\tHELD BY\tMOUNT")
	}
	for _, name := range names {
		l, err := look(ctx, repo, store, name)
		if err != nil {
			return err
		}
		if a.json {
			err = a.print(l)
		} else {
			_, err = fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%s\t%s\t%s\n", l.Name, l.Commit, l.Time.Local().Format(time.DateTime),
				l.Inodes, a.size(int64(l.Bytes)), dash(l.Holder), dash(a.name(l.Mount)))
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func look(ctx context.Context, repo *syncer.Repo, store, name string) (listed, error) {
	head, err := repo.Head(ctx, name)
	if err != nil {
		return listed{}, err
	}
	l := listed{Name: name, Commit: head.Number, Time: head.Time, Inodes: head.Stats.Inodes, Bytes: head.Stats.Bytes}
	holder, live, err := repo.LeaseHolder(ctx, name)
	if err != nil {
		return l, err
	}
	if live && holder != nil {
		l.Holder = fmt.Sprintf("%s (pid %d)", holder.Holder, holder.PID)
	}
	daemon, err := cli.FindTarget(cli.Target{Store: store, Name: name})
	if daemon != nil {
		l.Mount = daemon.Mount
	}
	return l, err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

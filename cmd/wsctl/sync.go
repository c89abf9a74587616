package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func syncCommand(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "sync",
		Short: "Commit everything to the store and wait for it",
		Long:  cli.Long("Returns when everything done before is in the store, and prints the commit that holds it."),
		Args:  cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if timeout < 0 {
				return cli.Usagef("--timeout=%v: want a positive duration", timeout)
			}
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error { return runSync(ctx, a, conn, timeout) })
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: as long as it takes)")
	return c
}

func runSync(ctx context.Context, a *app, conn *cli.Connection, timeout time.Duration) error {
	watch, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		showSync(watch, conn, a.json)
	}()
	commit, err := conn.Sync(ctx, timeout)
	stop()
	<-watched
	if err != nil {
		return err
	}
	return printSync(a, commit)
}

// showSync draws progress until ctx ends.
func showSync(ctx context.Context, conn *cli.Connection, quiet bool) {
	bar := cli.NewProgress("committing", quiet)
	defer bar.Done()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			st, err := conn.Status(ctx, false)
			if err != nil {
				return // the sync itself tells what is wrong
			}
			if st.Error != "" {
				bar.Text(cli.Printable(st.Error))
			} else {
				bar.Bytes(0, st.Done, st.Total)
			}
		}
	}
}

func printSync(a *app, c *api.Commit) error {
	if a.json {
		return a.print(c)
	}
	_, err := fmt.Fprintf(a.out, "commit %d\n", c.Number)
	return err
}

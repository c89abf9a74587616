package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func logCommand(a *app) *cobra.Command {
	n := 20
	c := &cobra.Command{
		Use:   "log",
		Short: "Show the commits, newest first",
		Long:  cli.Long("Shows the commits of a workspace, newest first."),
		Args:  cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 0 {
				return cli.Usagef("-n %d: want 0 (all) or more", n)
			}
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error { return runLog(ctx, a, conn, n) })
		},
	}
	c.Flags().IntVarP(&n, "number", "n", n, "show at most this many; 0 is all")
	return c
}

func runLog(ctx context.Context, a *app, conn *cli.Connection, n int) error {
	commits, err := conn.Log(ctx, n)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	if !a.json {
		fmt.Fprintln(t, "COMMIT\tTIME\tEPOCH\tHOST\tFILES\tSIZE\tADDED\tMESSAGE")
	}
	for _, c := range commits {
		if a.json {
			err = a.print(c)
		} else {
			_, err = fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\n", c.Number, c.Time.Local().Format(time.DateTime), c.Epoch, dash(c.Host),
				c.Inodes, a.size(int64(c.Bytes)), a.size(c.Uploaded), a.name(c.Message))
		}
		if err != nil {
			return err
		}
	}
	return t.Flush()
}

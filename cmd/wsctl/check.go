package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func checkCommand(a *app) *cobra.Command {
	var readData bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check that the workspace is whole",
		Long:  cli.Long("Checks every invariant of the metadata and that every chunk is where it should be; with --read-data also every byte.\nExits with 6 if something is wrong."),
		Args:  cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error { return runCheck(ctx, a, conn, readData) })
		},
	}
	c.Flags().BoolVar(&readData, "read-data", false, "also read and verify every chunk")
	return c
}

func runCheck(ctx context.Context, a *app, conn *cli.Connection, readData bool) error {
	bar := cli.NewProgress("checking", a.json)
	r, err := conn.Check(ctx, readData, func(p api.CheckProgress) { bar.Text(fmt.Sprintf("%d of %d chunks", p.Done, p.Total)) })
	bar.Done()
	if err != nil {
		return err
	}
	if a.json {
		err = a.print(r)
	} else {
		for _, p := range r.Problems {
			fmt.Fprintln(a.out, a.name(p))
		}
		_, err = fmt.Fprintf(a.out, "%d problems; %d chunks in %d packs\n", len(r.Problems), r.Chunks, r.Packs)
	}
	if err == nil && len(r.Problems) > 0 {
		return cli.Reported(cli.ExitDamaged)
	}
	return err
}

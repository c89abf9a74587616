package main

import (
	"context"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func mvCommand(a *app) *cobra.Command {
	var noClobber bool
	c := &cobra.Command{
		Use:   "mv SOURCE... DESTINATION",
		Short: "Rename or move inside the workspace",
		Long:  cli.Long("Renames inside the workspace, replacing what is at the destination."),
		Args:  cli.Args(2, -1, "SOURCE... DESTINATION"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error {
				err := eachPair(ctx, conn, args, func(from, to string) error { return conn.Rename(ctx, from, to, noClobber) })
				if err == nil && a.json {
					err = a.print(api.Done{OK: true})
				}
				return err
			})
		},
	}
	c.Flags().BoolVarP(&noClobber, "no-clobber", "n", false, "fail where the destination exists")
	return c
}

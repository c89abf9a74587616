package main

import (
	"context"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func cpCommand(a *app) *cobra.Command {
	var recursive bool
	c := &cobra.Command{
		Use:   "cp SOURCE... DESTINATION",
		Short: "Copy inside the workspace",
		Long:  cli.Long("Copies inside the workspace, keeping modes, owners, times, attributes, links and holes. Content is shared, not moved,\nwhere it is in the store already."),
		Args:  cli.Args(2, -1, "SOURCE... DESTINATION"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error {
				var sum api.Totals
				err := eachPair(ctx, conn, args, func(from, to string) error {
					t, err := conn.Copy(ctx, from, to, recursive)
					if err == nil {
						sum.Nodes, sum.Bytes = sum.Nodes+t.Nodes, sum.Bytes+t.Bytes
					}
					return err
				})
				if err == nil && a.json {
					err = a.print(sum)
				}
				return err
			})
		},
	}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with all they hold")
	return c
}

// eachPair calls fn with every source and where it is to go.
func eachPair(ctx context.Context, conn *cli.Connection, args []string, fn func(from, to string) error) error {
	sources, last := args[:len(args)-1], args[len(args)-1]
	d, err := resolveDestination(ctx, conn, last, len(sources))
	if err != nil {
		return err
	}
	for _, source := range sources {
		from, err := inside(source)
		if err == nil {
			err = fn(from, d.of(source))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

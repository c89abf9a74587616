package main

import (
	"context"

	"github.com/spf13/cobra"

	"wsfs/api"
	"wsfs/internal/cli"
)

func rmCommand(a *app) *cobra.Command {
	var recursive, force bool
	c := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Remove",
		Long:  cli.Long("Removes files and, with -r, directories with all they hold."),
		Args:  cli.Args(1, -1, "PATH..."),
		RunE: func(c *cobra.Command, args []string) error {
			paths, err := insideAll(args, "")
			if err != nil {
				return err
			}
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error {
				for _, p := range paths {
					if err := conn.Remove(ctx, p, recursive, force); err != nil {
						return err
					}
				}
				if a.json {
					return a.print(api.Done{OK: true})
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with all they hold")
	c.Flags().BoolVarP(&force, "force", "f", false, "what does not exist is no error")
	return c
}

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func dfCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "df",
		Short: "Show space and inodes",
		Long:  cli.Long("Shows what the workspace holds and how much more the cache directory can take before it is in the store."),
		Args:  cli.Args(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.with(c, true, func(ctx context.Context, conn *cli.Connection) error {
				s, err := conn.Space(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return a.print(s)
				}
				_, err = fmt.Fprintf(a.out, "total %s  used %s  available %s  files %d\n", a.size(int64(s.Total)),
					a.size(int64(s.Total-s.Free)), a.size(int64(s.Avail)), s.Files-s.FreeFiles)
				return err
			})
		},
	}
}

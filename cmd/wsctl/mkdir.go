package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func mkdirCommand(a *app) *cobra.Command {
	var parents bool
	var mode string
	c := &cobra.Command{
		Use:   "mkdir PATH...",
		Short: "Make directories",
		Long:  cli.Long("Makes directories."),
		Args:  cli.Args(1, -1, "PATH..."),
		RunE: func(c *cobra.Command, args []string) error {
			bits, err := parseMode(mode)
			if err != nil {
				return err
			}
			paths, err := insideAll(args, "")
			if err != nil {
				return err
			}
			return a.with(c, false, func(ctx context.Context, conn *cli.Connection) error {
				for _, p := range paths {
					e, err := conn.Mkdir(ctx, p, bits, parents)
					if err == nil && a.json {
						err = a.print(e)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents, accept what exists")
	c.Flags().StringVarP(&mode, "mode", "m", "0755", "permission bits, octal")
	return c
}

// parseMode reads octal permission bits.
func parseMode(s string) (uint32, error) {
	bits, err := strconv.ParseUint(s, 8, 12)
	if err != nil {
		return 0, cli.Usagef("mode %q: want octal permission bits such as 0755", s)
	}
	return uint32(bits), nil
}

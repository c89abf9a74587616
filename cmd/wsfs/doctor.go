package main

import (
	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [STORE]",
		Short: "Check this host and a store: one line each, with the remedy of what fails",
		Long:  cli.Long("Checks the kernel, /dev/fuse, passthrough, fusermount3 and the cache directory; with a store also every permission wsfs needs\nthere, conditional puts under a race, the clock and the credentials. Exits with 1 if something fails."),
		Args:  cli.Args(0, 1, "[STORE]"),
		RunE: func(c *cobra.Command, args []string) error {
			return cli.RunDoctor(c.Context(), args, asJSON, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return c
}

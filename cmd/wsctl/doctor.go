package main

import (
	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [STORE]",
		Short: "Check this host and a store: one line each, with the remedy of what fails",
		Long:  cli.Long("The same as wsfs doctor."),
		Args:  cli.Args(0, 1, "[STORE]"),
		RunE: func(c *cobra.Command, args []string) error {
			return cli.RunDoctor(c.Context(), args, a.json, a.out)
		},
	}
}

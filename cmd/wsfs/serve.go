package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"wsfs/internal/cli"
)

func serveCommand() *cobra.Command {
	s := defaults()
	c := &cobra.Command{
		Use:   "serve [STORE#]WORKSPACE",
		Short: "Keep a workspace open for wsctl and the API, without a mount",
		Long: cli.Long(`Opens a workspace and serves its API on the control socket, in the foreground, until a signal or
wsfs umount WORKSPACE ends it. It needs no /dev/fuse.`),
		Args: cli.Args(1, 1, "[STORE#]WORKSPACE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.validate(c.Flags(), nil, args[0], ""); err != nil {
				return err
			}
			return runDaemon(s, foregroundLog(s), func(line string) { fmt.Fprintln(os.Stderr, line) })
		},
	}
	s.flags(c.Flags())
	return c
}

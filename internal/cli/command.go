package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Root prepares a program's top command: usage errors get ExitUsage, errors are printed once by the caller.
func Root(c *cobra.Command) *cobra.Command {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usagef("%v; see %s --help", err, c.CommandPath())
	})
	c.Long = strings.TrimSpace(c.Long) + "\n\n" + ExitHelp
	return c
}

// Args checks the number of arguments: min to max, max < 0 for any. want shows what is expected.
func Args(min, max int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= min && (max < 0 || len(args) <= max) {
			return nil
		}
		return Usagef("%d arguments given; want: %s %s", len(args), c.CommandPath(), want)
	}
}

// NoCommand is the run of a command that only has subcommands.
func NoCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unknown command %q; see %s --help", args[0], c.CommandPath())
	}
	return c.Help()
}

// Long makes a help text that ends with the exit codes.
func Long(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + "\n\n" + ExitHelp
}

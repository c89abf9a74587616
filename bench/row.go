package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// step is a part of a row. It works in e.dir only, from a fresh process state, and ends when ctx does.
type step func(ctx context.Context, e *env) error

// row is one line of the table. Only run is timed; setup leaves the place as run expects it, and everything it wrote is
// on disk (and, in a workspace, committed) before run starts. A nil step does nothing. What is below the row's directory
// after teardown is removed.
type row struct {
	name     string
	setup    step
	run      step
	teardown step
	// keep leaves setup's work standing for all rounds: run does not change it. Setup then runs in the first round
	// only and warm before each timed run.
	keep bool
	warm step
}

// env is where one row runs in one place.
type env struct {
	dir string // the row's own directory in the place
	in  *inputs
}

// path joins names to the row's directory.
func (e *env) path(names ...string) string {
	return filepath.Join(append([]string{e.dir}, names...)...)
}

// allRows are the rows in the order of the table.
func allRows() []row {
	var rows []row
	for _, family := range [][]row{contentRows, nameRows, gitRows, packageRows, databaseRows} {
		rows = append(rows, family...)
	}
	return rows
}

// selectRows returns the rows whose name contains one of the comma-separated parts, all for "". A part that
// matches nothing is an error.
func selectRows(parts string) ([]row, error) {
	rows := allRows()
	if parts == "" {
		return rows, nil
	}
	chosen := make([]bool, len(rows))
	for part := range strings.SplitSeq(parts, ",") {
		matched := false
		for i, r := range rows {
			if strings.Contains(r.name, strings.TrimSpace(part)) {
				chosen[i], matched = true, true
			}
		}
		if !matched {
			return nil, fmt.Errorf("--rows: no row is named like %q; --list prints them", part)
		}
	}
	var out []row
	for i, r := range rows {
		if chosen[i] {
			out = append(out, r)
		}
	}
	return out, nil
}

// command runs a program in the row's directory and returns its output's end in the error if it fails.
func (e *env) command(ctx context.Context, name string, args ...string) error {
	return e.commandIn(ctx, e.dir, nil, name, args...)
}

func (e *env) commandIn(ctx context.Context, dir string, stdin []byte, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// tail returns the last few hundred bytes of a program's output on one line.
func tail(out []byte) string {
	s := strings.Join(strings.Fields(string(out)), " ")
	if len(s) > 400 {
		s = "..." + s[len(s)-400:]
	}
	return s
}

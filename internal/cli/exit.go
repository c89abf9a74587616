package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"wsfs"
	"wsfs/api"
	"wsfs/blobs"
	"wsfs/metadata"
	"wsfs/syncer"
)

// Exit codes of both commands.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitUnavailable = 5
	ExitDamaged     = 6
	ExitUnsynced    = 7
)

// ExitHelp is the table for --help.
const ExitHelp = `Exit codes:
  0  done
  1  failed
  2  wrong usage or bad input
  3  not found: store, workspace, mount or path
  4  refused: held by another writer, fenced, in use, exists already, or a newer format
  5  the store cannot be reached or denies access
  6  damaged: a pack, a record, the journal, or a check found problems
  7  ended with work that is not in the store yet; it stays in the cache directory`

// codes is the one table from errors to api codes and exit codes. The first match counts.
var codes = []struct {
	err  error
	code string
}{
	{wsfs.ErrUnsynced, api.CodeUnsynced},
	{syncer.ErrFenced, api.CodeFenced},
	{syncer.ErrHeld, api.CodeHeld},
	{syncer.ErrNewerFormat, api.CodeHeld},
	{syncer.ErrConditional, api.CodeHeld},
	{ErrInUse, api.CodeHeld},
	{wsfs.ErrInUse, api.CodeHeld},
	{syncer.ErrNotInitialised, api.CodeNotFound},
	{syncer.ErrNoWorkspace, api.CodeNotFound},
	{blobs.ErrNoStore, api.CodeNotFound},
	{ErrNotFound, api.CodeNotFound},
	{syncer.ErrName, api.CodeUsage},
	{blobs.ErrDenied, api.CodeDenied},
	{blobs.ErrUnavailable, api.CodeUnavailable},
	{blobs.ErrClockSkew, api.CodeUnavailable},
	{blobs.ErrDamaged, api.CodeDamaged},
	{metadata.ErrDamaged, api.CodeDamaged},
	{metadata.ErrPage, api.CodeDamaged},
	{metadata.ErrRecord, api.CodeDamaged},
	{syncer.ErrFormat, api.CodeDamaged},
}

// exits gives each code its exit code; what is not listed is ExitFailure.
var exits = map[string]int{
	api.CodeUsage: ExitUsage, "EINVAL": ExitUsage, "ENAMETOOLONG": ExitUsage,
	api.CodeNotFound: ExitNotFound, "ENOENT": ExitNotFound,
	api.CodeHeld: ExitRefused, api.CodeFenced: ExitRefused, "EBUSY": ExitRefused, "EEXIST": ExitRefused, "EROFS": ExitRefused,
	api.CodeUnavailable: ExitUnavailable, api.CodeDenied: ExitUnavailable,
	api.CodeDamaged: ExitDamaged, api.CodeUnsynced: ExitUnsynced,
}

var (
	// ErrUsage: the command line names something impossible.
	ErrUsage = errors.New("bad input")
	// ErrNotFound: no such mount, store or workspace.
	ErrNotFound = errors.New("not found")
	// ErrInUse: another process on this host has it.
	ErrInUse = errors.New("in use")
	// ErrReported: everything has been said already; only the exit code counts.
	ErrReported = errors.New("reported")
)

// coded is an error of one class whose text does not name the class.
type coded struct {
	class error
	text  string
	exit  int // 0: by class
}

func (e *coded) Error() string        { return e.text }
func (e *coded) Is(target error) bool { return target == e.class }

// Usagef, NotFoundf and InUsef are errors of the class in their name.
func Usagef(format string, args ...any) error {
	return &coded{class: ErrUsage, text: fmt.Sprintf(format, args...)}
}
func NotFoundf(format string, args ...any) error {
	return &coded{class: ErrNotFound, text: fmt.Sprintf(format, args...)}
}
func InUsef(format string, args ...any) error {
	return &coded{class: ErrInUse, text: fmt.Sprintf(format, args...)}
}

// Exit is an error with an exit code of its own.
func Exit(code int, format string, args ...any) error {
	return &coded{class: errors.ErrUnsupported, text: fmt.Sprintf(format, args...), exit: code}
}

// Reported ends the program with an exit code and no further message.
func Reported(code int) error { return &coded{class: ErrReported, exit: code} }

// Classify returns the api code of an error that is more than an errno, "" for others. It is api.Options.Classify.
func Classify(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if errors.Is(err, ErrUsage) {
		return api.CodeUsage
	}
	return ""
}

// ExitCode returns the exit code an error ends the program with.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var c *coded
	if errors.As(err, &c) && c.exit != 0 {
		return c.exit
	}
	var ae *api.Error
	if errors.As(err, &ae) {
		return exitOf(ae.Code)
	}
	if code := Classify(err); code != "" {
		return exitOf(code)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ExitNotFound
	case errors.Is(err, fs.ErrExist):
		return ExitRefused
	case errors.Is(err, context.Canceled):
		return ExitFailure
	}
	if code := errnoName(err); code != "" {
		return exitOf(code)
	}
	return ExitFailure
}

func exitOf(code string) int {
	if n, ok := exits[code]; ok {
		return n
	}
	return ExitFailure
}

// Report prints an error as the one line the user sees, unless it has been said already, and returns its exit code.
func Report(w io.Writer, program string, err error) int {
	if err != nil && !errors.Is(err, ErrReported) {
		fmt.Fprintf(w, "%s: %s\n", program, Printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	return ExitCode(err)
}

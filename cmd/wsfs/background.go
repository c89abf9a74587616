package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs/internal/cli"
)

// Going to the background: the command starts itself again in a session of its own, with its settings as JSON in
// ordersEnv and the write end of a pipe as descriptor 3. The daemon writes one verdict to the pipe, when it is ready or
// has failed, and closes it. What it prints before its log is open reaches the command through a second pipe (its
// stderr), so that even a crash at start is told.
const (
	ordersEnv = "WSFS_BACKGROUND"
	verdictFD = 3
)

// verdict is what a daemon in the background says about its start.
type verdict struct {
	Line  string // ready
	Error string // not ready
	Code  int
}

// background starts the daemon and waits for its verdict.
func background(s *settings) (string, error) {
	orders, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	var stderr bytes.Buffer
	errR, errW, err := os.Pipe()
	if err != nil {
		return "", errors.Join(err, w.Close())
	}
	defer errR.Close()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = "wsfs"
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(orders))
	cmd.Dir = "/"
	cmd.Stderr = errW
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	errW.Close()
	if err != nil {
		return "", fmt.Errorf("starting the daemon: %w", err)
	}
	defer forwardSignals(cmd.Process)()
	said, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("waiting for the daemon: %w", err)
	}
	var v verdict
	if json.Unmarshal(said, &v) == nil && v.Line != "" {
		return v.Line, cmd.Process.Release()
	}
	_, _ = io.Copy(&stderr, io.LimitReader(errR, 64<<10)) // ends when the daemon does
	werr := cmd.Wait()
	if v.Error != "" {
		return "", cli.Exit(v.Code, "%s", v.Error)
	}
	return "", fmt.Errorf("the daemon ended before it was ready (%v); its log is %s: %s", werr, logPath(s), lastLine(stderr.String()))
}

// forwardSignals passes an interrupt on while the command waits; the daemon is in another session and would not see
// it.
func forwardSignals(p *os.Process) (stop func()) {
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-ch:
				_ = p.Signal(sig) // gone already: then its verdict is coming
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(ch); close(done) }
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func logPath(s *settings) string { return filepath.Join(s.CacheDir, "log") }

// maxLog is where a daemon's log is moved to log.old at start, in bytes.
const maxLog = 8 << 20

// openLog opens the daemon's log and makes it stdout and stderr too, so that a crash leaves its trace there.
func openLog(s *settings) (*slog.Logger, error) {
	if err := os.MkdirAll(s.CacheDir, 0o700); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	path := logPath(s)
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	defer f.Close()
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: s.level()})), nil
}

// runBackground is the daemon's side.
func runBackground(orders string) int {
	pipe := os.NewFile(verdictFD, "verdict")
	unix.CloseOnExec(verdictFD)
	if err := os.Unsetenv(ordersEnv); err != nil {
		return cli.Report(os.Stderr, "wsfs", err)
	}
	tell := func(v verdict) {
		if pipe == nil {
			return
		}
		if err := json.NewEncoder(pipe).Encode(v); err != nil {
			slog.Warn("nobody waits for this daemon's start", "error", err)
		}
		pipe.Close()
		pipe = nil
	}
	s := new(settings)
	if err := json.Unmarshal([]byte(orders), s); err != nil {
		return cli.Report(os.Stderr, "wsfs", cli.Usagef("%s is set to %q; unset it", ordersEnv, orders))
	}
	log, err := openLog(s)
	if err == nil {
		slog.SetDefault(log)
		err = runDaemon(s, log, func(line string) { tell(verdict{Line: line}) })
	}
	if err != nil {
		if log != nil {
			log.Error("the daemon ends", "error", err)
		}
		tell(verdict{Error: err.Error(), Code: cli.ExitCode(err)})
	}
	return cli.ExitCode(err)
}

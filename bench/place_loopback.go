package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// loopbackChild is the first argument of a child process that serves the loopback file system: the process that measures
// must not serve what it measures.
const loopbackChild = "loopback-child"

// serveLoopback serves source on dir until it is unmounted, with the options of go-fuse's own example.
func serveLoopback(source, dir string) error {
	root, err := fs.NewLoopbackRoot(source)
	if err != nil {
		return fmt.Errorf("open %s: %w", source, err)
	}
	second := time.Second
	server, err := fs.Mount(dir, root, &fs.Options{
		AttrTimeout: &second, EntryTimeout: &second, NullPermissions: true,
		MountOptions: fuse.MountOptions{FsName: source, Name: "loopback", DirectMount: true},
	})
	if err != nil {
		return fmt.Errorf("mount the loopback on %s: %w", dir, err)
	}
	server.Wait()
	return nil
}

// loopback is a place served by the child.
type loopback struct {
	directory
	source string
	done   chan error
	child  *exec.Cmd
}

// mountLoopback serves a directory of base through a child process.
func mountLoopback(ctx context.Context, work, base string) (*loopback, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &loopback{source: filepath.Join(base, "loopback-source"), done: make(chan error, 1)}
	l.directory = directory{label: "loopback", path: filepath.Join(work, "loopback")}
	if err := errors.Join(os.Mkdir(l.source, 0o755), os.Mkdir(l.path, 0o755)); err != nil {
		return nil, err
	}
	l.child = exec.Command(self, loopbackChild, l.source, l.path)
	l.child.Stderr = os.Stderr
	l.child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig comes when the starting thread ends
		err := l.child.Start()
		started <- err
		if err == nil {
			l.done <- l.child.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the loopback: %w", err)
	}
	if err := waitMounted(ctx, l.path); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *loopback) settle(context.Context) error {
	return errors.Join(syncFS(l.path), syncFS(l.source))
}

// close unmounts and waits for the child, which then ends by itself.
func (l *loopback) close() error {
	err := unmount(l.path)
	select {
	case waited := <-l.done:
		return errors.Join(err, waited)
	case <-time.After(10 * time.Second):
		return errors.Join(err, errors.New("the loopback child did not end"), l.child.Process.Kill())
	}
}

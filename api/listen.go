package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what fits sockaddr_un, with its NUL.
const maxSocketPath = 107

// Listen opens a control socket at path: mode 0600, a socket a dead daemon left is replaced, a live one is an error.
// Connections of other users than our own and root are closed at once. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	if _, err := os.Lstat(path); err == nil {
		if c, err := dialUnix(path); err == nil {
			c.Close()
			return nil, fmt.Errorf("control socket %s: another daemon answers there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing a dead control socket: %w", err)
		}
	}
	var l *net.UnixListener
	err := viaShortPath(path, func(p string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // it would remove the short name
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return &listener{UnixListener: l, path: path}, nil
}

// listener accepts only peers that may control us.
type listener struct {
	*net.UnixListener
	path string
}

// Accept returns the next connection of an allowed peer.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if allowed(c) {
			return c, nil
		}
		c.Close()
	}
}

// Close stops listening and removes the socket.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if rerr := os.Remove(l.path); rerr != nil && !os.IsNotExist(rerr) {
		err = errors.Join(err, rerr)
	}
	return err
}

// allowed asks the kernel who is at the other end.
func allowed(c *net.UnixConn) bool {
	sc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	if err := sc.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || credErr != nil {
		return false
	}
	return mayControl(cred.Uid, os.Geteuid())
}

// mayControl is the rule: the daemon's own user, or root.
func mayControl(peer uint32, self int) bool { return peer == 0 || int(peer) == self }

func dialUnix(path string) (net.Conn, error) {
	var c net.Conn
	err := viaShortPath(path, func(p string) (err error) {
		c, err = net.Dial("unix", p)
		return err
	})
	return c, err
}

// viaShortPath calls fn with a name of the socket that fits its address: long ones go through an open descriptor of
// the directory.
func viaShortPath(path string, fn func(string) error) error {
	if len(path) <= maxSocketPath {
		return fn(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

package main_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// notifySocket is systemd's end of sd_notify.
type notifySocket struct {
	path string
	conn *net.UnixConn
}

func listenNotify(t *testing.T, dir string) *notifySocket {
	t.Helper()
	path := filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &notifySocket{path, c}
}

// expect reads messages until one has the line.
func (n *notifySocket) expect(t *testing.T, line string) {
	t.Helper()
	if err := n.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		k, err := n.conn.Read(buf)
		if err != nil {
			t.Fatalf("waiting for %s: %v", line, err)
		}
		for got := range strings.SplitSeq(string(buf[:k]), "\n") {
			if got == line {
				return
			}
		}
	}
}

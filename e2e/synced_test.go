package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// syncerChild names the directory in which a child of the test binary writes and fsyncs files until it is killed or the
// file system goes away. It is a process of its own so that a mount that hangs cannot hang the tests.
const syncerChild = "WSFS_E2E_SYNCED_DIR"

// syncedContent is what the child writes into file n: sizes from 0 to 300 KiB, so every way content is kept is used.
func syncedContent(n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("file %d. ", n)), n*n*7%34_000)
}

func syncedName(n int) string { return fmt.Sprintf("synced-%06d", n) }

// writeSynced is the child: it says on stdout which files fsync has promised.
func writeSynced(dir string) int {
	for n := 0; ; n++ {
		if err := writeAndSync(filepath.Join(dir, syncedName(n)), syncedContent(n)); err != nil {
			fmt.Println("end", err)
			return 0 // the mount went away, as the test wants
		}
		fmt.Println(n)
	}
}

func writeAndSync(path string, content []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

// synced is a running child.
type synced struct {
	cmd *exec.Cmd
	out io.ReadCloser
}

func startSynced(t *testing.T, dir string) *synced {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &synced{cmd: exec.Command(os.Args[0])}
	s.cmd.Env = append(os.Environ(), syncerChild+"="+dir)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// stop waits for the child to notice that the mount is gone (or kills it after a while) and returns how many files it
// was promised.
func (s *synced) stop(t *testing.T) (promised int) {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() }) // ended already: fine
	defer timer.Stop()
	for lines := bufio.NewScanner(s.out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "end") {
			t.Logf("the writer ended: %s", lines.Text())
			continue
		}
		promised++
	}
	if err := s.cmd.Wait(); err != nil {
		t.Logf("the writer was killed: %v", err)
	}
	return promised
}

// checkSynced wants every promised file whole.
func checkSynced(t *testing.T, dir string, promised int) {
	t.Helper()
	lost := 0
	for n := range promised {
		have, err := os.ReadFile(filepath.Join(dir, syncedName(n)))
		if err == nil && bytes.Equal(have, syncedContent(n)) {
			continue
		}
		if lost++; lost <= 10 {
			t.Errorf("%s was fsynced: have %d bytes of %d, %v", syncedName(n), len(have), len(syncedContent(n)), err)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d fsynced files are lost or damaged", lost, promised)
	}
}

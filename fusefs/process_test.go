package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// command starts a program that is killed at the end of the test.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

// TestAppendProcesses: lines appended by many processes arrive whole.
func TestAppendProcesses(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		const procs, lines = 6, 200
		script := `i=0; while [ $i -lt ` + fmt.Sprint(lines) + ` ]; do echo "process $0 line $i end" >> "$1"; i=$((i+1)); done`
		var all []*exec.Cmd
		for p := range procs {
			all = append(all, command(t, "/bin/sh", "-c", script, fmt.Sprint(p), s.path("log")))
		}
		for _, cmd := range all {
			must(t, cmd.Wait())
		}
		got, err := os.ReadFile(s.path("log"))
		must(t, err)
		seen := map[string]bool{}
		for line := range strings.Lines(string(got)) {
			seen[strings.TrimSpace(line)] = true
		}
		for p := range procs {
			for l := range lines {
				if want := fmt.Sprintf("process %d line %d end", p, l); !seen[want] {
					t.Fatalf("lost %q (%d lines of %d)", want, len(seen), procs*lines)
				}
			}
		}
	})
}

// TestAtomicReplace: while a name is replaced by rename over and over, here and behind the kernel's back, opening, stating
// and reading it never fails.
func TestAtomicReplace(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.WriteFile(s.path("f"), []byte("content 0"), 0644))
		stop := make(chan struct{})
		var tries, failed atomic.Int64
		var wg sync.WaitGroup
		look := func(what string, fn func() error) {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					tries.Add(1)
					if err := fn(); err != nil && failed.Add(1) < 5 {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		}
		look("read", func() error {
			got, err := os.ReadFile(s.path("f"))
			if err == nil && !bytes.HasPrefix(got, []byte("content ")) {
				err = fmt.Errorf("content %q", got)
			}
			return err
		})
		look("stat", func() error { _, err := os.Stat(s.path("f")); return err })
		look("access", func() error { return syscall.Access(s.path("f"), 4) })
		for i := range 300 {
			if i%3 == 0 {
				var ok string
				s.ask(&ok, "write behind content %d", i)
				s.ask(&ok, "rename behind f")
				continue
			}
			must(t, os.WriteFile(s.path("new"), fmt.Appendf(nil, "content %d", i), 0644))
			must(t, os.Rename(s.path("new"), s.path("f")))
		}
		close(stop)
		wg.Wait()
		t.Logf("%d looks, %d failed", tries.Load(), failed.Load())
	})
}

// asNobody runs a shell script as an unprivileged user.
func asNobody(t *testing.T, script string, args ...string) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", script}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestPrivileges: the kernel checks permissions, and a write, truncation or chown takes set-user-ID away.
func TestPrivileges(t *testing.T) {
	eachMode(t, func(t *testing.T, s *served) {
		must(t, os.Chmod(s.dir, 0777))
		for d := s.dir; strings.Count(d, "/") > 2; d = d[:strings.LastIndexByte(d, '/')] {
			must(t, os.Chmod(d[:strings.LastIndexByte(d, '/')], 0755))
		}
		must(t, os.WriteFile(s.path("secret"), []byte("x"), 0600))
		if err := asNobody(t, `cat "$0"`, s.path("secret")); err == nil || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("reading a file of root: %v", err)
		}
		for what, script := range map[string]string{"write": `echo x >> "$0"`, "truncate on open": `: > "$0"`} {
			must(t, os.WriteFile(s.path("suid"), []byte("x"), 0777))
			must(t, syscall.Chmod(s.path("suid"), 06777))
			must(t, asNobody(t, script, s.path("suid")))
			if st := lstat(t, s.path("suid")); st.Mode&07000 != 0 {
				t.Errorf("%s by nobody: mode %o", what, st.Mode)
			}
			must(t, os.Remove(s.path("suid")))
		}
		must(t, os.WriteFile(s.path("suid"), []byte("x"), 0777))
		must(t, syscall.Chmod(s.path("suid"), 06777))
		must(t, os.WriteFile(s.path("suid"), []byte("root may"), 0777))
		if st := lstat(t, s.path("suid")); st.Mode&07000 != 06000 {
			t.Errorf("write by root: mode %o", st.Mode)
		}
		must(t, os.Chown(s.path("suid"), 1, 1))
		if st := lstat(t, s.path("suid")); st.Mode&07000 != 0 {
			t.Errorf("chown: mode %o", st.Mode)
		}
	})
}

// TestInterrupt: a signal that does not end a program does not end its request either; one that does, does.
func TestInterrupt(t *testing.T) {
	s := start(t, childConfig{Core: "mem", Passthrough: PassthroughOff})
	must(t, os.WriteFile(s.path("slow"), []byte("at last"), 0644)) // READs of this name take two seconds
	must(t, os.WriteFile(s.path("never"), []byte("never"), 0644))  // and of this one never end
	var ok string
	s.ask(&ok, "cold slow")
	s.ask(&ok, "cold never")

	// O_DIRECT: the kernel does not tell of signals while a program waits for read-ahead.
	fd, err := unix.Open(s.path("slow"), unix.O_RDONLY|unix.O_DIRECT, 0)
	must(t, err)
	got := make(chan error, 1)
	tid := make(chan int, 1)
	signal.Notify(make(chan os.Signal, 10), syscall.SIGUSR1)
	defer signal.Reset(syscall.SIGUSR1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		buf := alignedBuffer(4096)
		n, err := unix.Pread(fd, buf, 0)
		if err == nil && string(buf[:n]) != "at last" {
			err = fmt.Errorf("read %q", buf[:n])
		}
		got <- err
	}()
	thread := <-tid
	for range 5 {
		time.Sleep(200 * time.Millisecond)
		must(t, unix.Tgkill(os.Getpid(), thread, syscall.SIGUSR1))
	}
	if err := <-got; err != nil {
		t.Errorf("interrupted read: %v", err)
	}
	must(t, unix.Close(fd))

	dd := command(t, "/bin/dd", "if="+s.path("never"), "of=/dev/null", "iflag=direct", "bs=4096")
	time.Sleep(300 * time.Millisecond)
	begin := time.Now()
	must(t, dd.Process.Signal(syscall.SIGTERM))
	if err := dd.Wait(); err == nil {
		t.Error("killed and no error")
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("SIGTERM took %v", took)
	}
}

// alignedBuffer returns n bytes that O_DIRECT takes.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+4096)
	off := 4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)
	return b[off : off+n]
}

package blobtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/minio"
)

// Time limits of a server's life.
const (
	readyTimeout = 30 * time.Second
	stopTimeout  = 3 * time.Second // between the polite signal and the other one
)

// Server is a bucket on a real S3 server of this machine, on a free loopback port.
type Server struct {
	URL       string // for the s3 driver
	MinioURL  string // for the minio driver
	AccessKey string
	SecretKey string
	Bucket    string // exists

	p *process
}

// process is the server program. Servers of several buckets share one.
type process struct {
	name    string // for messages
	dir     string // data, log and configuration
	address string // host:port
	access  string
	secret  string
	command func(p *process) *exec.Cmd

	mu   sync.Mutex // guards cmd and done
	cmd  *exec.Cmd  // nil while stopped
	done chan struct{}
}

// StartVersitygw starts `versitygw posix` with its data below dir, which it makes, and a bucket. The caller stops it;
// it also dies with this process.
func StartVersitygw(dir string) (*Server, error) {
	bin, err := tool("versitygw", versitygwModule)
	if err != nil {
		return nil, err
	}
	return startServer("versitygw", dir, func(p *process) *exec.Cmd {
		cmd := exec.Command(bin, "--quiet", "--keep-alive", "--port", p.address, "posix", filepath.Join(p.dir, "data"))
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+p.access, "ROOT_SECRET_KEY="+p.secret)
		return cmd
	})
}

// StartRclone starts `rclone serve s3` with its data below dir, which it makes, and a bucket. The caller stops it; it
// also dies with this process.
func StartRclone(dir string) (*Server, error) {
	bin, err := tool("rclone", rcloneModule)
	if err != nil {
		return nil, err
	}
	return startServer("rclone", dir, func(p *process) *exec.Cmd {
		cmd := exec.Command(bin, "serve", "s3", "--addr", p.address, "--auth-key", p.access+","+p.secret,
			"--config", filepath.Join(p.dir, "rclone.conf"), "--cache-dir", filepath.Join(p.dir, "cache"), filepath.Join(p.dir, "data"))
		cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1")
		return cmd
	})
}

func startServer(name, dir string, command func(*process) *exec.Cmd) (*Server, error) {
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, dir: dir, command: command, access: "wsfs" + rand.Text()[:12], secret: rand.Text()}
	var err error
	for range 5 { // a port that was free a moment ago can be taken by another
		if p.address, err = freeAddress(); err == nil {
			err = p.start()
		}
		if err == nil {
			s, err := p.newBucket(context.Background())
			return s, errors.Join(err, stopIf(err, p))
		}
	}
	return nil, err
}

func stopIf(err error, p *process) error {
	if err == nil {
		return nil
	}
	return p.stop()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// start runs the program and waits until it answers.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close() // the child has its own descriptor
	cmd := p.command(p)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// Pdeathsig comes when the starting *thread* ends: this one stays until the child is gone.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed on purpose, or seen by ready below
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	if err := p.ready(); err != nil {
		return errors.Join(err, p.stopLocked())
	}
	return nil
}

// ready waits until the server speaks HTTP on its port.
func (p *process) ready() error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); {
		select {
		case <-p.done:
			out, _ := os.ReadFile(filepath.Join(p.dir, "log")) // only to say more
			return fmt.Errorf("start %s: it ended at once: %s", p.name, out)
		case <-time.After(20 * time.Millisecond):
		}
		if resp, err := client.Get("http://" + p.address + "/"); err == nil {
			return resp.Body.Close()
		}
	}
	return fmt.Errorf("start %s: no answer on %s after %v", p.name, p.address, readyTimeout)
}

func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopLocked()
}

func (p *process) stopLocked() error {
	if p.cmd == nil {
		return nil
	}
	group := -p.cmd.Process.Pid
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := syscall.Kill(group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		select {
		case <-p.done:
			p.cmd = nil
			return nil
		case <-time.After(stopTimeout):
		}
	}
	return fmt.Errorf("stop %s: still there after SIGKILL", p.name)
}

// newBucket makes a bucket of a fresh name. A server that is not ours on the port would refuse our secret.
func (p *process) newBucket(ctx context.Context) (*Server, error) {
	s := p.server("wsfs-" + strings.ToLower(rand.Text()))
	loc, err := blobs.ParseURL(s.MinioURL)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err = minio.Open(ctx, loc, minio.Options{AccessKey: p.access, SecretKey: p.secret, Create: true}); err != nil {
		return nil, fmt.Errorf("make a bucket on %s: %w", p.name, err)
	}
	return s, nil
}

// server is the Server of a path, bucket or bucket/prefix, existing or not.
func (p *process) server(path string) *Server {
	bucket, _, _ := strings.Cut(path, "/")
	return &Server{
		URL:       "s3://" + path + "?endpoint=http://" + p.address + "&region=us-east-1",
		MinioURL:  "minio://" + p.address + "/" + path + "?tls=false",
		AccessKey: p.access, SecretKey: p.secret, Bucket: bucket, p: p,
	}
}

// NewBucket makes another bucket on the same server and returns it as a Server of its own.
func (s *Server) NewBucket(ctx context.Context) (*Server, error) { return s.p.newBucket(ctx) }

// In returns the Server of another bucket, which need not exist, or of bucket/prefix.
func (s *Server) In(path string) *Server { return s.p.server(path) }

// Stop ends the server; its port and data stay reserved for Start. Buckets that NewBucket made stop with it, and so do
// those that other tests got from Versitygw or Rclone: stop a server of your own.
func (s *Server) Stop() error { return s.p.stop() }

// Start brings a stopped server back on the same port with the same data and keys.
func (s *Server) Start() error { return s.p.start() }

// shared is a server that the tests of one binary share. It runs while a test holds it.
type shared struct {
	start func(dir string) (*Server, error)

	mu     sync.Mutex // guards the rest
	users  int
	server *Server
	dir    string
}

var (
	sharedVersitygw = &shared{start: StartVersitygw}
	sharedRclone    = &shared{start: StartRclone}
)

// Versitygw returns a fresh bucket on a versitygw server that the tests of this binary share. It fails the test where
// the server cannot be had. Tests that stop servers start their own with StartVersitygw.
func Versitygw(t testing.TB) *Server { t.Helper(); return sharedVersitygw.bucket(t) }

// Rclone returns a fresh bucket on an rclone server that the tests of this binary share. It fails the test where the
// server cannot be had. Tests that stop servers start their own with StartRclone.
func Rclone(t testing.TB) *Server { t.Helper(); return sharedRclone.bucket(t) }

func (h *shared) bucket(t testing.TB) *Server {
	t.Helper()
	if err := h.hold(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.release(); err != nil {
			t.Error(err)
		}
	})
	s, err := h.server.NewBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *shared) hold() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 {
		dir, err := os.MkdirTemp("", "wsfs-blobtest-")
		if err != nil {
			return err
		}
		server, err := h.start(dir)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		h.server, h.dir = server, dir
	}
	h.users++
	return nil
}

func (h *shared) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 {
		return nil
	}
	return errors.Join(h.server.Stop(), os.RemoveAll(h.dir))
}

package wsfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// staging hands out the files that hold content not yet chunked, and large content kept whole. A file's name is its
// number in hex; numbers are never reused, so a record can never meet another file's content.
//
// A staging file is removed only after the op that dropped it is on stable storage: until then a power loss may bring
// the record back that names it.
type staging struct {
	dir string

	mu     sync.Mutex
	next   uint64
	spare  []stagingFile // made ahead, so that creating a file does not wait for the disk's directory
	doomed []uint64
	fresh  bool // a file was made since the directory was last synced

	dirSync sync.Mutex
}

type stagingFile struct {
	f      *os.File
	number uint64
}

const spareStaging = 8

func openStaging(dir string) (*staging, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &staging{dir: dir, next: 1}
	numbers, err := s.numbers()
	for _, n := range numbers {
		s.next = max(s.next, n+1)
	}
	return s, err
}

// numbers lists the files there are. Foreign names are left alone.
func (s *staging) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 16, 64); err == nil && e.Name() == stagingName(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

func stagingName(number uint64) string { return fmt.Sprintf("%016x", number) }

func (s *staging) path(number uint64) string { return filepath.Join(s.dir, stagingName(number)) }

// create returns an empty file.
func (s *staging) create() (stagingFile, error) {
	s.mu.Lock()
	if n := len(s.spare); n > 0 {
		f := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return f, nil
	}
	s.mu.Unlock()
	return s.make()
}

func (s *staging) make() (stagingFile, error) {
	s.mu.Lock()
	number := s.next
	s.next++
	s.fresh = true
	s.mu.Unlock()
	f, err := os.OpenFile(s.path(number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return stagingFile{f, number}, err
}

// refill makes spare files; short reports that there is room for more.
func (s *staging) refill() error {
	for {
		s.mu.Lock()
		full := len(s.spare) >= spareStaging
		s.mu.Unlock()
		if full {
			return nil
		}
		f, err := s.make()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.spare = append(s.spare, f)
		s.mu.Unlock()
	}
}

// wantsRefill tells whether few spare files are left.
func (s *staging) wantsRefill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spare) < spareStaging/2
}

func (s *staging) open(number uint64) (*os.File, error) {
	return os.OpenFile(s.path(number), os.O_RDWR, 0)
}

// doom queues a file for removal.
func (s *staging) doom(number uint64) {
	s.mu.Lock()
	s.doomed = append(s.doomed, number)
	s.mu.Unlock()
}

// takeDoomed empties the queue.
func (s *staging) takeDoomed() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.doomed
	s.doomed = nil
	return d
}

// syncNames makes the names of all files made so far durable.
func (s *staging) syncNames() error {
	s.dirSync.Lock()
	defer s.dirSync.Unlock()
	s.mu.Lock()
	fresh := s.fresh
	s.fresh = false
	s.mu.Unlock()
	if !fresh {
		return nil
	}
	d, err := os.Open(s.dir)
	if err == nil {
		err = d.Sync()
		d.Close()
	}
	if err != nil {
		s.mu.Lock()
		s.fresh = true
		s.mu.Unlock()
	}
	return err
}

// close removes the spare files.
func (s *staging) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.spare {
		f.f.Close()
		os.Remove(s.path(f.number))
	}
	s.spare = nil
}

// stamp identifies a state of a staging file.
type stamp struct {
	size, blocks, mtime, ctime int64
}

// same tells that nothing was written between two stamps.
func (s stamp) same(o stamp) bool {
	s.blocks, o.blocks = 0, 0
	return s == o
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	var err error
	if cerr := control(f, func(fd int) { err = unix.Fstat(fd, &st) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return stamp{}, err
	}
	return stamp{st.Size, st.Blocks * 512, st.Mtim.Nano(), st.Ctim.Nano()}, nil
}

// control runs fn with f's descriptor, which cannot be closed or reused meanwhile.
func control(f *os.File, fn func(fd int)) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(func(fd uintptr) { fn(int(fd)) })
}

// nextData returns the first range at or after off that is not a hole; start == the file's size if there is none.
func nextData(f *os.File, off int64) (start, end int64, err error) {
	cerr := control(f, func(fd int) {
		start, err = unix.Seek(fd, off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			start, err = unix.Seek(fd, 0, unix.SEEK_END)
			end = start
			return
		}
		if err == nil {
			end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
		}
	})
	if cerr != nil {
		err = cerr
	}
	return start, end, err
}

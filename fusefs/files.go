package fusefs

import (
	"sync"
	"sync/atomic"
	"syscall"

	"wsfs"
)

// openFile is what a file handle number of the kernel stands for.
type openFile struct {
	h       handle
	ino     wsfs.Ino
	inode   *openInode
	writer  bool
	creator uint32       // pid that created the file with this handle, 0: it existed
	end     atomic.Int64 // highest offset written by WRITE, for the size prediction
}

// fileTable gives numbers to open files. Number 0 is never given: it is what requests without a handle carry.
type fileTable struct {
	mu    sync.RWMutex
	files []*openFile // guarded by mu; index is number-1
	free  []uint64    // guarded by mu; numbers given back
	open  int         // guarded by mu
}

func (t *fileTable) add(f *openFile) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	if n := len(t.free); n > 0 {
		fh := t.free[n-1]
		t.free = t.free[:n-1]
		t.files[fh-1] = f
		return fh
	}
	t.files = append(t.files, f)
	return uint64(len(t.files))
}

// get returns EBADF for a number that is not open.
func (t *fileTable) get(fh uint64) (*openFile, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if fh == 0 || fh > uint64(len(t.files)) || t.files[fh-1] == nil {
		return nil, syscall.EBADF
	}
	return t.files[fh-1], nil
}

// remove forgets a number and returns what it stood for, nil if nothing.
func (t *fileTable) remove(fh uint64) *openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fh == 0 || fh > uint64(len(t.files)) || t.files[fh-1] == nil {
		return nil
	}
	f := t.files[fh-1]
	t.files[fh-1] = nil
	t.free = append(t.free, fh)
	t.open--
	return f
}

func (t *fileTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open
}

// drain forgets every number and returns what was open.
func (t *fileTable) drain() []*openFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*openFile
	for _, f := range t.files {
		if f != nil {
			all = append(all, f)
		}
	}
	t.files, t.free, t.open = nil, nil, 0
	return all
}

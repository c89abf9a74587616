package fusefs

import (
	"context"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"wsfs"
)

func (m *memCore) GetXattr(_ context.Context, ino wsfs.Ino, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return nil, err
	}
	if v, ok := n.xattrs[name]; ok {
		return v, nil
	}
	return nil, syscall.ENODATA
}

func (m *memCore) SetXattr(_ context.Context, ino wsfs.Ino, name string, value []byte, flags uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return err
	}
	_, ok := n.xattrs[name]
	if ok && flags&unix.XATTR_CREATE != 0 {
		return syscall.EEXIST
	}
	if !ok && flags&unix.XATTR_REPLACE != 0 {
		return syscall.ENODATA
	}
	if n.xattrs == nil {
		n.xattrs = map[string][]byte{}
	}
	n.xattrs[name] = value
	return nil
}

func (m *memCore) ListXattr(_ context.Context, ino wsfs.Ino) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return nil, err
	}
	for name := range n.xattrs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m *memCore) RemoveXattr(_ context.Context, ino wsfs.Ino, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.get(ino)
	if err != nil {
		return err
	}
	if _, ok := n.xattrs[name]; !ok {
		return syscall.ENODATA
	}
	delete(n.xattrs, name)
	return nil
}

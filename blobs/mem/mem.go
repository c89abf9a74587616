// Package mem is the store in memory, for tests.
//
// It keeps objects in one sorted slice under one lock, copies every body on the way in and out, and forgets
// everything when the process ends. It cannot presign.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"wsfs/blobs"
)

// Store is a blobs.Store in memory. The zero value is not usable; see New and Named.
type Store struct {
	name string

	mu      sync.RWMutex // guards objects
	objects []object     // sorted by key
}

type object struct {
	key      string
	body     []byte // never changed once here
	modified time.Time
}

var _ blobs.Store = (*Store)(nil)

// New returns an empty store of its own.
func New() *Store { return &Store{} }

// named holds the stores that mem:name URLs share. It is the one process global: sharing by name is its purpose.
var named struct {
	sync.Mutex
	stores map[string]*Store
}

// Named returns the store that everybody in this process who uses the name shares. An empty name gives a new store
// each time.
func Named(name string) *Store {
	if name == "" {
		return New()
	}
	named.Lock()
	defer named.Unlock()
	if named.stores == nil {
		named.stores = make(map[string]*Store)
	}
	s := named.stores[name]
	if s == nil {
		s = &Store{name: name}
		named.stores[name] = s
	}
	return s
}

// Forget drops the named store; whoever holds it keeps it, and the next Named starts an empty one.
func Forget(name string) {
	named.Lock()
	defer named.Unlock()
	delete(named.stores, name)
}

// find returns where key is or belongs. The lock must be held.
func (s *Store) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s.objects, key, func(o object, k string) int { return strings.Compare(o.key, k) })
}

func begin(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if err := blobs.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Get implements blobs.Store.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := begin(ctx, "get", key); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("get %s: negative offset %d", key, offset)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.find(key)
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, blobs.ErrNotExist)
	}
	body := s.objects[i].body
	body = body[min(offset, int64(len(body))):]
	if length >= 0 && length < int64(len(body)) {
		body = body[:length]
	}
	return append([]byte{}, body...), nil
}

// Put implements blobs.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put", key, body, true)
}

// PutIfAbsent implements blobs.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	return s.put(ctx, "put if absent", key, body, false)
}

func (s *Store) put(ctx context.Context, op, key string, body []byte, replace bool) error {
	if err := begin(ctx, op, key); err != nil {
		return err
	}
	o := object{key: key, body: bytes.Clone(body), modified: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.find(key)
	switch {
	case ok && !replace:
		return fmt.Errorf("%s %s: %w", op, key, blobs.ErrExist)
	case ok:
		s.objects[i] = o
	default:
		s.objects = slices.Insert(s.objects, i, o)
	}
	return nil
}

// Delete implements blobs.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, "delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.find(key); ok {
		s.objects = slices.Delete(s.objects, i, i+1)
	}
	return nil
}

// List implements blobs.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]blobs.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	limit = blobs.ListLimit(limit)
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, found := s.find(max(prefix, after))
	if found && after >= prefix {
		i++
	}
	var page []blobs.Object
	for ; i < len(s.objects) && len(page) < limit && strings.HasPrefix(s.objects[i].key, prefix); i++ {
		o := s.objects[i]
		page = append(page, blobs.Object{Key: o.key, Size: int64(len(o.body)), Modified: o.modified})
	}
	return page, nil
}

// Presign implements blobs.Store; nobody outside could fetch from memory, so it is ErrUnsupported.
func (s *Store) Presign(context.Context, string, time.Duration, blobs.PresignOptions) (*url.URL, error) {
	return nil, fmt.Errorf("presign on %s: %w", s.URL(), blobs.ErrUnsupported)
}

// URL implements blobs.Store.
func (s *Store) URL() string { return "mem:" + s.name }

package blobs

import "container/list"

// byteLRU keeps byte slices up to a total length, least recently used out first. Not safe for concurrent use.
type byteLRU[K comparable] struct {
	limit  int64 // bytes; less than 1 keeps nothing
	used   int64 // bytes
	items  map[K]*list.Element
	recent *list.List // of lruItem[K], most recent first
}

type lruItem[K comparable] struct {
	key K
	val []byte
}

func newByteLRU[K comparable](limit int64) *byteLRU[K] {
	return &byteLRU[K]{limit: limit, items: make(map[K]*list.Element), recent: list.New()}
}

func (l *byteLRU[K]) get(key K) ([]byte, bool) {
	el, ok := l.items[key]
	if !ok {
		return nil, false
	}
	l.recent.MoveToFront(el)
	return el.Value.(lruItem[K]).val, true
}

// add keeps val, replacing what key had, unless val alone exceeds the limit. Each entry counts itemCost more than its
// length, so that empty or tiny ones are bounded too.
func (l *byteLRU[K]) add(key K, val []byte) {
	l.remove(key)
	if cost(val) > l.limit {
		return
	}
	l.items[key] = l.recent.PushFront(lruItem[K]{key, val})
	l.used += cost(val)
	for l.used > l.limit {
		l.remove(l.recent.Back().Value.(lruItem[K]).key)
	}
}

func (l *byteLRU[K]) remove(key K) {
	el, ok := l.items[key]
	if !ok {
		return
	}
	l.used -= cost(el.Value.(lruItem[K]).val)
	l.recent.Remove(el)
	delete(l.items, key)
}

// itemCost is about what an entry takes besides its bytes.
const itemCost = 200

func cost(val []byte) int64 { return int64(len(val)) + itemCost }

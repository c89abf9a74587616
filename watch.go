package wsfs

import "wsfs/syncer"

// EventKind says what happened.
type EventKind uint8

const (
	EventCreate EventKind = iota + 1 // an entry came to be
	EventRemove                      // an entry went
	EventRename                      // an entry moved
	EventWrite                       // content changed
	EventAttr                        // attributes changed
	EventCommit                      // a commit became durable (Commit set)
	EventLost                        // the watcher was too slow: events were dropped
)

// Event is one change, in the order in which changes happened.
type Event struct {
	Kind      EventKind
	Ino       Ino
	Parent    Ino
	Name      string
	NewParent Ino
	NewName   string
	Commit    uint64
}

// Watcher receives events on C until Close.
type Watcher struct {
	C    <-chan Event
	c    chan Event
	w    *Workspace
	lost bool // under w.watchMu
}

// Watch returns a watcher with room for buffer events (at least 16). One that falls behind loses events and gets one
// EventLost in their place.
func (w *Workspace) Watch(buffer int) *Watcher {
	c := make(chan Event, max(buffer, 16))
	x := &Watcher{C: c, c: c, w: w}
	w.watchMu.Lock()
	defer w.watchMu.Unlock()
	w.watchers[x] = struct{}{}
	w.watching.Add(1)
	return x
}

// Close ends the watcher and closes C.
func (x *Watcher) Close() {
	x.w.watchMu.Lock()
	defer x.w.watchMu.Unlock()
	if _, ok := x.w.watchers[x]; ok {
		delete(x.w.watchers, x)
		x.w.watching.Add(-1)
		close(x.c)
	}
}

// notify hands an event to the watchers; it never blocks.
func (w *Workspace) notify(e Event) {
	if w.watching.Load() == 0 {
		return
	}
	w.watchMu.Lock()
	defer w.watchMu.Unlock()
	for x := range w.watchers {
		x.send(e)
	}
}

func (x *Watcher) send(e Event) {
	if x.lost {
		select {
		case x.c <- Event{Kind: EventLost}:
			x.lost = false
		default:
			return
		}
	}
	select {
	case x.c <- e:
	default:
		x.lost = true
	}
}

func (w *Workspace) notifyCommit(c *syncer.Commit) {
	w.notify(Event{Kind: EventCommit, Commit: c.Number})
}

package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"wsfs/blobs"
	"wsfs/blobs/fault"
	"wsfs/metadata"
)

// simWriter is one host in the simulation with a model of its files.
type simWriter struct {
	*host
	id     string
	model  map[string]string
	inos   map[string]metadata.Ino
	states map[uint64]map[string]string // by journal sequence number: what a commit with that Seq must hold
	base   map[string]string            // what the commit it started from holds
}

// sim is several writers of one workspace over a store that fails at random. Whatever happens, every commit in the
// store must be one consistent state that its writer had, every acknowledged commit must be there, and a writer whose
// number was taken must find out.
type sim struct {
	*env
	rng     *rand.Rand
	writers []*simWriter
	acked   map[uint64]string // number -> nonce
	started int
	kept    map[uint64]bool // numbers retention removed
	log     []string
	fences  int
	crashes int
	faults  int
}

func (s *sim) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// mount opens the workspace on a fresh host that takes over, as wsfs mount --takeover does.
func (s *sim) mount() *simWriter {
	s.started++
	id := fmt.Sprintf("w%d", s.started)
	h := s.open("w", id, WriterOptions{PackTarget: 64 << 10, StableTries: 2})
	head := h.w.headNow()
	w := &simWriter{host: h, id: id, states: map[uint64]map[string]string{}}
	w.base = filesOf(s.t, s.repo, &head)
	w.model, w.inos = maps.Clone(w.base), map[string]metadata.Ino{}
	for name := range w.model {
		w.inos[name] = h.lookup(metadata.RootIno, name)
	}
	w.states[0] = maps.Clone(w.base)
	s.note("%s mounts commit %d", id, head.Number)
	return w
}

func (s *sim) change(w *simWriter) {
	for range 1 + s.rng.IntN(4) {
		name := fmt.Sprintf("f%d", s.rng.IntN(8))
		_, there := w.model[name]
		if there && s.rng.IntN(3) == 0 {
			w.unlink(metadata.RootIno, name, false)
			delete(w.model, name)
			delete(w.inos, name)
			continue
		}
		size := []int{0, 10, 600, 5000, 70000}[s.rng.IntN(5)]
		content := randomBytes(s.rng.Uint64()%50, size)
		if there {
			w.write(w.inos[name], content, size > 20000)
		} else {
			w.inos[name] = w.make(metadata.RootIno, name, 0o100644)
			w.write(w.inos[name], content, size > 20000)
		}
		w.model[name] = string(content)
	}
	w.states[w.seq] = maps.Clone(w.model)
}

func (s *sim) injectFault() {
	s.fault.Clear()
	if s.rng.IntN(2) == 0 {
		return
	}
	ops := []fault.Op{fault.Put, fault.PutIfAbsent, fault.Get, fault.List, fault.Any}
	s.fault.Plan(fault.Plan{Op: ops[s.rng.IntN(len(ops))], Nth: 1 + s.rng.IntN(4), Times: 1 + s.rng.IntN(3),
		Kind: []fault.Kind{fault.Before, fault.After}[s.rng.IntN(2)]})
}

// commit has a writer commit under a random fault.
func (s *sim) commit(i int) {
	w := s.writers[i]
	s.injectFault()
	c, err := w.w.Commit(context.Background(), "")
	s.fault.Clear()
	switch {
	case err == nil:
		s.note("%s commits %d", w.id, c.Number)
		s.acked[c.Number] = c.Nonce
		if n := w.w.headNow(); c.Number == n.Number && c.Writer == w.id && !maps.Equal(w.model, w.states[c.Seq]) && c.Seq == w.seq {
			s.t.Errorf("the model moved during a commit")
		}
	case errors.Is(err, ErrFenced):
		s.note("%s is fenced: %v", w.id, err)
		s.fences++
		if w.dirty() == 0 && len(w.states) > 1 && w.w.headNow().Writer != w.id {
			s.t.Errorf("%s lost what was dirty", w.id)
		}
		s.writers[i] = s.mount()
	case errors.Is(err, blobs.ErrUnavailable):
		s.faults++
		s.note("%s fails: %v", w.id, err)
	default:
		s.t.Fatalf("%s: %v", w.id, err)
	}
}

func (s *sim) takeover(i int) {
	w := s.writers[i]
	s.injectFault()
	err := w.w.Takeover(context.Background())
	s.fault.Clear()
	s.note("%s takes over: %v", w.id, err)
	if err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, blobs.ErrUnavailable) {
		s.t.Fatalf("takeover: %v", err)
	}
}

// crash ends a writer between any two steps; its live side goes on with a new one.
func (s *sim) crash(i int) {
	w := s.writers[i]
	s.crashes++
	head, err := s.repo.Head(context.Background(), "w")
	if err != nil {
		s.t.Fatal(err)
	}
	p := Position{Number: w.host.head.Number, Epoch: w.host.head.Epoch, Nonce: w.host.head.Nonce, Writer: w.id, Seq: w.seq,
		Dirty: w.dirty() > 0}
	how := Resume(head, p)
	s.note("%s crashes at %d, finds %d: %d", w.id, p.Number, head.Number, how)
	tree := OpenTree(head, w.r, nil)
	switch how {
	case AdoptNothing:
	case AdoptRebase:
		w.mu.Lock()
		w.host.base, w.host.head = tree, *head
		w.mu.Unlock()
	case AdoptForeign, AdoptFenced:
		s.writers[i] = s.mount()
		return
	default:
		s.t.Fatalf("adoption %d with the whole journal there", how)
	}
	w.w = NewWriter(s.repo, "w", head, tree, w.fakeLocal, nil, w.w.o)
}

// retain removes commits older than the newest, at least the floor later.
func (s *sim) retain() {
	s.clock.advance(11 * time.Minute)
	head, err := s.repo.Head(context.Background(), "w")
	if err != nil {
		s.t.Fatal(err)
	}
	for n := head.Number - 1; n > 0 && n+5 > head.Number; n-- {
		if s.rng.IntN(2) == 0 {
			if err := s.inner.Delete(context.Background(), CommitKey("w", n)); err != nil {
				s.t.Fatal(err)
			}
			s.kept[n] = true
		}
	}
	s.note("retention at %d", head.Number)
}

// check reads every commit in the store.
func (s *sim) check(byID map[string]*simWriter) {
	commits, err := s.repo.Commits(context.Background(), "w", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	there := map[uint64]string{}
	for _, c := range commits {
		there[c.Number] = c.Nonce
		w := byID[c.Writer]
		if w == nil {
			continue // the first commit
		}
		want, ok := w.states[c.Seq]
		if c.Seq == 0 {
			want, ok = w.base, true
		}
		if got := filesOf(s.t, s.repo, &c); !ok || !maps.Equal(got, want) {
			s.t.Errorf("commit %d of %s at op %d is no state it had (%v): %d files, want %d", c.Number, c.Writer, c.Seq, ok,
				len(got), len(want))
		}
	}
	for n, nonce := range s.acked {
		if there[n] != nonce && !s.kept[n] {
			s.t.Errorf("acknowledged commit %d is lost: nonce %q, there is %q", n, nonce, there[n])
		}
	}
}

func simulate(t *testing.T, seed uint64) (s *sim) {
	s = &sim{env: newEnv(t), rng: rand.New(rand.NewPCG(seed, 1)), acked: map[uint64]string{}, kept: map[uint64]bool{}}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: WSFS_SEED=%d go test -run TestSimulation", seed, seed)
			for _, line := range s.log {
				t.Log(line)
			}
		}
	}()
	byID := map[string]*simWriter{}
	for range 2 + s.rng.IntN(2) {
		s.writers = append(s.writers, s.mount())
	}
	for range 60 {
		for _, w := range s.writers {
			byID[w.id] = w
		}
		i := s.rng.IntN(len(s.writers))
		if s.rng.IntN(3) > 0 { // one of them does most of the work
			i = 0
		}
		switch k := s.rng.IntN(20); {
		case k < 8:
			s.change(s.writers[i])
		case k < 15:
			s.commit(i)
		case k < 16:
			s.takeover(i)
		case k < 18:
			s.crash(i)
		case k < 19:
			s.retain()
		default:
			s.clock.advance(time.Duration(s.rng.IntN(40)) * time.Minute)
		}
	}
	for _, w := range s.writers {
		byID[w.id] = w
	}
	s.check(byID)
	return s
}

func TestSimulation(t *testing.T) {
	if v := os.Getenv("WSFS_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulate(t, seed)
		return
	}
	first, fences, crashes, faults, commits := rand.Uint64()>>1, 0, 0, 0, 0
	for i := range uint64(40) {
		s := simulate(t, first+i)
		fences, crashes, faults, commits = fences+s.fences, crashes+s.crashes, faults+s.faults, commits+len(s.acked)
		if t.Failed() {
			return
		}
	}
	t.Logf("seeds from %d: %d commits acknowledged, %d fences, %d crashes, %d failed tries", first, commits, fences, crashes, faults)
	if fences == 0 || crashes == 0 || faults == 0 {
		t.Error("the simulation does not meet what it is for")
	}
}

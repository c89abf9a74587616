package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// stepTimeout bounds one setup or one timed run.
const stepTimeout = 10 * time.Minute

// sample is one timed run.
type sample struct {
	Row      string            `json:"row"`
	Place    string            `json:"place"`
	Round    int               `json:"round"`
	Seconds  float64           `json:"seconds"`
	Requests map[string]uint64 `json:"fuse_requests,omitempty"` // of the timed part, where the place counts them
}

// result is everything measured of one row.
type result struct {
	row     string
	samples map[string][]sample // by place
	failed  map[string]error    // the first failure in a place; it is not measured further
}

type measurement struct {
	o      options
	places []place
	inputs *inputs
}

// all measures the rows one after the other. It returns what it has when ctx ends.
func (m *measurement) all(ctx context.Context, rows []row) ([]*result, error) {
	var results []*result
	for i, r := range rows {
		fmt.Fprintf(m.o.diagnostics, "[%d/%d] %s\n", i+1, len(rows), r.name)
		res := &result{row: r.name, samples: map[string][]sample{}, failed: map[string]error{}}
		results = append(results, res)
		for round := range m.o.rounds {
			m.round(ctx, r, round, res)
			if ctx.Err() != nil {
				return results, fmt.Errorf("stopped in row %s: %w", r.name, ctx.Err())
			}
		}
		m.remove(ctx, r, res)
	}
	return results, nil
}

// round gives each place its turn, starting with another one in each round.
func (m *measurement) round(ctx context.Context, r row, round int, res *result) {
	for i := range m.places {
		p := m.places[(i+round)%len(m.places)]
		if res.failed[p.name()] != nil || ctx.Err() != nil {
			continue
		}
		s, err := m.turn(ctx, r, p, round)
		if err != nil {
			res.failed[p.name()] = err
			continue
		}
		res.samples[p.name()] = append(res.samples[p.name()], s)
	}
}

func (m *measurement) env(r row, p place) *env {
	return &env{dir: filepath.Join(p.dir(), "row"), in: m.inputs}
}

// turn runs one row in one place: prepare, settle, time, clean up, settle.
func (m *measurement) turn(ctx context.Context, r row, p place, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	e := m.env(r, p)
	s := sample{Row: r.name, Place: p.name(), Round: round}
	if err := m.prepare(ctx, r, p, round, e); err != nil {
		return s, fmt.Errorf("prepare: %w", err)
	}
	before, err := p.requests(ctx)
	if err != nil {
		return s, err
	}
	start := time.Now()
	if err := r.run(ctx, e); err != nil {
		return s, fmt.Errorf("run: %w", err)
	}
	s.Seconds = time.Since(start).Seconds()
	after, err := p.requests(ctx)
	if err != nil {
		return s, err
	}
	s.Requests = difference(before, after)
	if err := call(ctx, r.teardown, e); err != nil {
		return s, fmt.Errorf("clean up: %w", err)
	}
	if !r.keep {
		if err := os.RemoveAll(e.dir); err != nil {
			return s, fmt.Errorf("clean up: %w", err)
		}
	}
	return s, p.settle(ctx)
}

// prepare leaves the place as the timed run wants it, with nothing left to do in the background.
func (m *measurement) prepare(ctx context.Context, r row, p place, round int, e *env) error {
	if !r.keep || round == 0 {
		if err := os.Mkdir(e.dir, 0o755); err != nil {
			return err
		}
		if err := call(ctx, r.setup, e); err != nil {
			return err
		}
		if err := p.settle(ctx); err != nil {
			return err
		}
	}
	return call(ctx, r.warm, e)
}

// remove deletes what a row left standing, also after a failure.
func (m *measurement) remove(ctx context.Context, r row, res *result) {
	for _, p := range m.places {
		err := os.RemoveAll(m.env(r, p).dir)
		if err = errors.Join(err, p.settle(ctx)); err != nil && res.failed[p.name()] == nil {
			res.failed[p.name()] = fmt.Errorf("clean up: %w", err)
		}
	}
}

func call(ctx context.Context, s step, e *env) error {
	if s == nil {
		return nil
	}
	return s(ctx, e)
}

// difference is what was counted between two readings; nil if the place does not count.
func difference(before, after map[string]uint64) map[string]uint64 {
	if after == nil {
		return nil
	}
	out := map[string]uint64{}
	for name, n := range after {
		if d := n - before[name]; d > 0 {
			out[name] = d
		}
	}
	return out
}

// failures joins the errors of all rows, so that a failed row fails the command.
func failures(results []*result) error {
	var err error
	for _, res := range results {
		for place, failed := range res.failed {
			err = errors.Join(err, fmt.Errorf("row %q on %s: %w", res.row, place, failed))
		}
	}
	return err
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the loopback child, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == loopbackChild {
		if err := serveLoopback(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fastDir is a temporary directory in memory where the machine has one: these tests measure nothing, and syncing and
// deleting thousands of files on a busy disk takes minutes.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "wsfs-bench-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func plainPlace(t *testing.T, name string) *directory {
	dir := filepath.Join(fastDir(t), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &directory{label: name, path: dir, clean: func() error { return nil }}
}

// TestEveryRowRuns runs each row, scaled down, for two rounds in two plain directories: every sample must be there and
// the directories must be empty afterwards.
func TestEveryRowRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	places := []place{plainPlace(t, "one"), plainPlace(t, "two")}
	o := options{rounds: 2, scale: 0.01, diagnostics: io.Discard}
	m := &measurement{o: o, places: places, inputs: newInputs(fastDir(t), o.scale)}
	results, err := m.all(ctx, allRows())
	if err != nil {
		t.Fatal(err)
	}
	if err := failures(results); err != nil {
		t.Fatal(err)
	}
	for _, res := range results {
		for _, p := range places {
			if n := len(res.samples[p.name()]); n != o.rounds {
				t.Errorf("row %s on %s: %d samples, want %d", res.row, p.name(), n, o.rounds)
			}
		}
	}
	for _, p := range places {
		if left, err := os.ReadDir(p.dir()); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind %v, %v", p.name(), left, err)
		}
	}
	var out bytes.Buffer
	printTable(&out, o, places, results)
	for _, r := range allRows() {
		if !strings.Contains(out.String(), "\n"+r.name+" ") {
			t.Errorf("row %s is not in the table:\n%s", r.name, out.String())
		}
	}
}

// TestFailedRowIsShownAndFails wants a row that fails in one place to be in the table, in the JSON and in the error.
func TestFailedRowIsShownAndFails(t *testing.T) {
	places := []place{plainPlace(t, "one"), plainPlace(t, "two")}
	o := options{rounds: 1, scale: 0.01, diagnostics: io.Discard}
	broken := row{name: "broken", run: func(_ context.Context, e *env) error {
		if strings.Contains(e.dir, "/two/") {
			return errors.New("no luck")
		}
		return nil
	}}
	m := &measurement{o: o, places: places, inputs: newInputs(fastDir(t), o.scale)}
	results, err := m.all(context.Background(), []row{broken})
	if err != nil {
		t.Fatal(err)
	}
	if err := failures(results); err == nil || !strings.Contains(err.Error(), `row "broken" on two: run: no luck`) {
		t.Errorf("error: %v", err)
	}
	var out bytes.Buffer
	printTable(&out, o, places, results)
	if !strings.Contains(out.String(), "FAILED") {
		t.Errorf("table:\n%s", out.String())
	}
	file := filepath.Join(t.TempDir(), "samples.json")
	if err := writeJSON(file, o, results); err != nil {
		t.Fatal(err)
	}
	var rec record
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil || len(rec.Samples) != 1 || rec.Failed["broken on two"] != "run: no luck" {
		t.Errorf("record %+v, %v", rec, err)
	}
}

// TestPlacesTakeTurns wants another place to start in each round, and setup of a kept row to run once.
func TestPlacesTakeTurns(t *testing.T) {
	places := []place{plainPlace(t, "one"), plainPlace(t, "two")}
	var order []string
	setups := 0
	r := row{name: "r", keep: true,
		setup: func(context.Context, *env) error { setups++; return nil },
		run: func(_ context.Context, e *env) error {
			order = append(order, filepath.Base(filepath.Dir(e.dir)))
			return nil
		}}
	m := &measurement{o: options{rounds: 2, diagnostics: io.Discard}, places: places, inputs: newInputs(t.TempDir(), 1)}
	if _, err := m.all(context.Background(), []row{r}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", "two", "two", "one"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if setups != 2 {
		t.Errorf("%d setups, want one per place", setups)
	}
}

func TestLoopbackServesItsSource(t *testing.T) {
	base := t.TempDir()
	l, err := mountLoopback(context.Background(), t.TempDir(), base)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir(), "f"), []byte("x"), 0o644); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(base, "loopback-source", "f")); err != nil || string(b) != "x" {
		t.Errorf("source holds %q, %v", b, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median of three: %v", m)
	}
	if m := median([]float64{4, 1, 2, 9}); m != 3 {
		t.Errorf("median of four: %v", m)
	}
}

func TestCellsShowRatioAndRequests(t *testing.T) {
	res := &result{row: "r", samples: map[string][]sample{
		"ext4": {{Seconds: 0.010}, {Seconds: 0.030}, {Seconds: 0.020}},
		"wsfs": {{Seconds: 0.050, Requests: map[string]uint64{"LOOKUP": 3, "OPEN": 4}}},
	}}
	w := &workspace{counting: true}
	got := strings.Join(res.cells([]place{&directory{label: "ext4"}, w}), "|")
	if want := "r|20.0 (10.0-30.0)|50.0 (50.0-50.0)|2.50|7"; got != want {
		t.Errorf("cells %s, want %s", got, want)
	}
}

func TestFindRequests(t *testing.T) {
	got, err := findRequests([]byte(`{"name":"x","mount":{"dir":"/m","requests":{"LOOKUP":7}}}`))
	if err != nil || got["LOOKUP"] != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := findRequests([]byte(`{"name":"x"}`)); got != nil || err != nil {
		t.Errorf("without counts: %v, %v", got, err)
	}
	if d := difference(map[string]uint64{"A": 1, "B": 2}, map[string]uint64{"A": 4, "B": 2}); len(d) != 1 || d["A"] != 3 {
		t.Errorf("difference %v", d)
	}
}

func TestFlagsRefuseBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--rounds", "0"}, "--rounds 0"},
		{[]string{"--scale", "NaN"}, "--scale NaN"},
		{[]string{"--store", "s3"}, `--store "s3"`},
		{[]string{"--rows", "teleport"}, "teleport"},
		{[]string{"--wsfs", "x"}, "go together"},
		{[]string{"--image-gib", "0"}, "--image-gib 0"},
		{[]string{"extra"}, `"extra"`},
	} {
		if _, err := parseFlags(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one naming %s", c.args, err, c.want)
		}
	}
	if o, err := parseFlags([]string{"--rows", "npm, sqlite"}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	} else if rows, err := selectRows(o.rows); err != nil || len(rows) != 3 {
		t.Errorf("%d rows, %v; want npm install and both of sqlite", len(rows), err)
	}
}

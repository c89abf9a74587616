package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// median of a non-empty list.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func seconds(samples []sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.Seconds
	}
	return out
}

// printTable prints a line per row: median and spread in each place, ratios to the first place, FUSE requests.
func printTable(w io.Writer, o options, places []place, results []*result) {
	fmt.Fprintf(w, "%s; store %s, %d rounds, scale %v\n", machine(), o.store, o.rounds, o.scale)
	fmt.Fprintln(w, "milliseconds: median (lowest-highest); x: ratio of the medians to the first place; rq: FUSE requests of the timed part")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{"row"}
	for i, p := range places {
		head = append(head, p.name())
		if i > 0 {
			head = append(head, "x")
		}
		if p.counts() {
			head = append(head, "rq")
		}
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, res := range results {
		fmt.Fprintln(tw, strings.Join(res.cells(places), "\t"))
	}
	tw.Flush()
}

// cells are the columns of one row.
func (res *result) cells(places []place) []string {
	cells := []string{res.row}
	var base float64
	for i, p := range places {
		samples := res.samples[p.name()]
		if res.failed[p.name()] != nil || len(samples) == 0 {
			cells = append(cells, "FAILED")
			if i > 0 {
				cells = append(cells, "-")
			}
			if p.counts() {
				cells = append(cells, "-")
			}
			continue
		}
		values := seconds(samples)
		mid := median(values)
		cells = append(cells, fmt.Sprintf("%s (%s-%s)", milliseconds(mid), milliseconds(slices.Min(values)), milliseconds(slices.Max(values))))
		if i == 0 {
			base = mid
		} else if base > 0 {
			cells = append(cells, fmt.Sprintf("%.2f", mid/base))
		} else {
			cells = append(cells, "-")
		}
		if p.counts() {
			cells = append(cells, requestCell(samples))
		}
	}
	return cells
}

// milliseconds prints a time with three digits that mean something.
func milliseconds(s float64) string {
	ms := s * 1000
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

// requestCell is the median number of requests, all opcodes together.
func requestCell(samples []sample) string {
	var totals []float64
	for _, s := range samples {
		var n uint64
		for _, count := range s.Requests {
			n += count
		}
		if s.Requests != nil {
			totals = append(totals, float64(n))
		}
	}
	if len(totals) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", median(totals))
}

// machine describes where the figures were taken.
func machine() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("%d cores, Linux %s, %s", runtime.NumCPU(), kernel, runtime.Version())
}

// record is the JSON form of a run.
type record struct {
	Machine string            `json:"machine"`
	Store   string            `json:"store"`
	Rounds  int               `json:"rounds"`
	Scale   float64           `json:"scale"`
	Samples []sample          `json:"samples"`
	Failed  map[string]string `json:"failed,omitempty"` // "row on place" -> error
}

// writeJSON writes every sample to a file, replacing it.
func writeJSON(file string, o options, results []*result) error {
	rec := record{Machine: machine(), Store: o.store, Rounds: o.rounds, Scale: o.scale, Failed: map[string]string{}}
	for _, res := range results {
		for _, samples := range res.samples {
			rec.Samples = append(rec.Samples, samples...)
		}
		for place, err := range res.failed {
			rec.Failed[res.row+" on "+place] = err.Error()
		}
	}
	slices.SortStableFunc(rec.Samples, func(a, b sample) int {
		if c := strings.Compare(a.Row, b.Row); c != 0 {
			return c
		}
		if c := strings.Compare(a.Place, b.Place); c != 0 {
			return c
		}
		return a.Round - b.Round
	})
	text, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return fmt.Errorf("encode the samples: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	return nil
}

package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"wsfs/blobs"
)

// FormatVersion is the store format this program writes, and the highest one it reads.
const FormatVersion = 1

// formatKey is the object that makes a store a pool.
const formatKey = "wsfs.json"

// probeRace is how many puts race in the probe of conditional puts.
const probeRace = 16

// Format is wsfs.json: what every reader and writer of a pool must agree on. It never changes.
type Format struct {
	Version     int              `json:"version"`
	Pool        string           `json:"pool"`        // random, names the pool wherever it is copied to
	Polynomial  blobs.Polynomial `json:"polynomial"`  // of the chunker, hexadecimal
	Compression string           `json:"compression"` // "zstd"
	Encryption  string           `json:"encryption"`  // "none"
	Created     time.Time        `json:"created"`
	// Conditional: the probe at Init found conditional puts to work.
	Conditional bool `json:"conditional"`
	// SingleWriter: whoever initialised the pool promised that no two hosts ever write to one workspace at a time.
	SingleWriter bool `json:"single_writer"`
}

// InitOptions configures Init.
type InitOptions struct {
	// SingleWriter accepts a store without working conditional puts: nothing then keeps two writers apart.
	SingleWriter bool
	Clock        Clock // default WallClock
}

// Init makes a store a pool: it probes conditional puts and writes wsfs.json. It fails with ErrConditional if they do
// not work and o.SingleWriter does not accept that, and with blobs.ErrExist if the store is a pool already.
func Init(ctx context.Context, store blobs.Store, o InitOptions) (*Repo, error) {
	if o.Clock == nil {
		o.Clock = WallClock{}
	}
	if f, err := readFormat(ctx, store); err == nil {
		return nil, existingPool(store, f)
	} else if !errors.Is(err, ErrNotInitialised) {
		return nil, err
	}
	conditional, err := probeConditional(ctx, store, o.SingleWriter)
	if err != nil {
		return nil, err
	}
	pol, err := blobs.NewPolynomial()
	if err != nil {
		return nil, fmt.Errorf("choosing the chunker's polynomial: %w", err)
	}
	f := Format{
		Version: FormatVersion, Pool: newNonce(), Polynomial: pol, Compression: "zstd", Encryption: "none",
		Created: o.Clock.Now().UTC().Truncate(time.Second), Conditional: conditional, SingleWriter: o.SingleWriter,
	}
	body, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", formatKey, err)
	}
	r := newRepo(store, f, RepoOptions{Clock: o.Clock})
	switch err := r.putOnce(ctx, formatKey, body); {
	case err == nil:
		return r, nil
	case !errors.Is(err, blobs.ErrExist):
		return nil, fmt.Errorf("initialising %s: %w", store.URL(), err)
	}
	there, err := readFormat(ctx, store)
	if err != nil {
		return nil, err
	}
	if there.Pool == f.Pool { // the reply to our own put was lost
		return r, nil
	}
	return nil, existingPool(store, there)
}

func existingPool(store blobs.Store, f Format) error {
	return fmt.Errorf("%s is initialised already (pool %s, since %s): %w",
		store.URL(), f.Pool, f.Created.Format(time.DateOnly), blobs.ErrExist)
}

// probeConditional tells whether conditional puts work, or why the store is refused.
func probeConditional(ctx context.Context, store blobs.Store, singleWriter bool) (bool, error) {
	result, err := blobs.Probe(ctx, store, probeRace)
	if err != nil {
		return false, fmt.Errorf("probing %s: %w", store.URL(), err)
	}
	if result.Exclusive() {
		return true, nil
	}
	if singleWriter {
		return false, nil
	}
	return false, fmt.Errorf("%s: %w (%s); with --single-writer it is used all the same, and then you must never mount a "+
		"workspace twice", store.URL(), ErrConditional, result)
}

// readFormat reads and checks wsfs.json.
func readFormat(ctx context.Context, store blobs.Store) (Format, error) {
	var f Format
	body, err := store.Get(ctx, formatKey, 0, -1)
	if errors.Is(err, blobs.ErrNotExist) {
		return f, fmt.Errorf("%s: %w: run `wsctl init %s` first, or check the prefix", store.URL(), ErrNotInitialised, store.URL())
	}
	if err != nil {
		return f, fmt.Errorf("reading %s of %s: %w", formatKey, store.URL(), err)
	}
	return f, f.decode(store.URL(), body)
}

func (f *Format) decode(url string, body []byte) error {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return fmt.Errorf("%s of %s: %w: %w", formatKey, url, ErrFormat, err)
	}
	if v.Version > FormatVersion {
		return fmt.Errorf("%s: %w: format %d, this program knows up to %d: use a newer wsfs", url, ErrNewerFormat,
			v.Version, FormatVersion)
	}
	if err := json.Unmarshal(body, f); err != nil {
		return fmt.Errorf("%s of %s: %w: %w", formatKey, url, ErrFormat, err)
	}
	switch {
	case f.Version < 1:
		return fmt.Errorf("%s of %s: %w: format %d", formatKey, url, ErrFormat, f.Version)
	case f.Pool == "":
		return fmt.Errorf("%s of %s: %w: no pool id", formatKey, url, ErrFormat)
	case f.Compression != "zstd" || f.Encryption != "none":
		return fmt.Errorf("%s of %s: %w: compression %q, encryption %q, this program knows zstd and none", formatKey, url,
			ErrFormat, f.Compression, f.Encryption)
	}
	if err := f.Polynomial.Validate(); err != nil {
		return fmt.Errorf("%s of %s: %w: %w", formatKey, url, ErrFormat, err)
	}
	return nil
}

package syncer

import (
	"encoding/json"
	"fmt"

	"wsfs/blobs"
)

// FormatBody is the pool's wsfs.json, for OfflineRepo.
func (r *Repo) FormatBody() ([]byte, error) {
	b, err := json.Marshal(r.format)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", formatKey, err)
	}
	return b, nil
}

// OfflineRepo opens a pool that cannot be reached now with the format it was last seen to have; a pool's format never
// changes.
func OfflineRepo(store blobs.Store, format []byte, o RepoOptions) (*Repo, error) {
	var f Format
	if err := f.decode(store.URL(), format); err != nil {
		return nil, err
	}
	return newRepo(store, f, o), nil
}

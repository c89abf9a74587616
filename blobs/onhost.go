package blobs

import "strings"

// OnThisHost tells whether the store's objects are in memory or on a disk of this host, so that a local cache of them
// would only keep the same bytes twice.
func OnThisHost(s Store) bool {
	u := s.URL()
	return strings.HasPrefix(u, "dir:") || strings.HasPrefix(u, "mem:")
}

// Package cli is what the commands wsfs and wsctl share: how a workspace is named and found, where its cache directory
// is, which mounts live on this host, and how an error becomes a message and an exit code.
//
// Nouns: a target is a parsed [STORE#]WORKSPACE ([Target]); a live mount is a daemon that has registered itself
// ([Live]); a cache directory belongs to one workspace of one store URL and is used by one process at a time
// ([Cache]).
//
// Warning: nothing here may touch a path inside a mount of the same process.
package cli

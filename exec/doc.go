// Package exec will run programs against a workspace through one entry point with several backends. Nothing of it is
// built yet: the package holds its place in the import table, where it may import the root package only and the API
// may import it.
package exec

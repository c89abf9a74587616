// Package e2e drives the built commands as a user does, on real input: npm, git, go and sqlite on a mount, over a
// directory and over a real S3 server; hosts that are lost, killed, cut off from the store, or fighting over a workspace.
//
// A host is a home, cache and runtime directory of its own on this machine; a store kind is what lies behind the
// workspace; a work is a program's whole use of a directory that can be verified later. The package has tests only;
// its subpackages are the tools the tests share with the benchmarks.
//
// The tests run at a size that suits every change; with -full they run at the size that docs/performance.md and the
// issue tracker speak of, and print their figures.
package e2e

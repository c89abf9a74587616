// Package syncer carries a workspace between its live side on a host and the store: the store's format file, commits,
// leases, the commit engine, cold open and following.
//
// # Nouns
//
// A pool ([Repo]) is a store initialised for wsfs; it holds any number of workspaces that share chunks. A commit
// ([Commit]) is a numbered durable state of one workspace; the one with the highest number is the head. A [Lease]
// says who writes to a workspace, out of politeness. The epoch counts reigns of writers. A fence is what a writer
// meets when another one has put the next commit ([FencedError]). A [Writer] makes commits from what a [Local], the
// live side, has changed.
//
// # Contract
//
//   - A commit must become visible only after everything it refers to is durable: chunks, then tree pages, then the
//     index object, then PutIfAbsent of the commit. That last put is the commit.
//   - The number is the fence: of all writers that build on commit n exactly one puts n+1. A lease, its clock and its
//     expiry decide nothing.
//   - A fenced writer never commits again, never overwrites and never drops what is only local.
//   - After a failure at any step the head is as it was and everything local is still dirty. Chunks that became
//     durable are remembered, so the next try does not upload them again.
//
// # Locks
//
// Writer.turn (one commit at a time) is taken before Writer.mu (its state); nothing is called with Writer.mu held.
//
// # Warnings
//
//   - After an error of the last put the commit may exist. The Writer keeps that very commit and puts it again before
//     it makes another one; a new process finds it as its own by [Resume].
//   - Orphans (inodes without a link) are not in a commit. What they need while they are open (record, attributes,
//     extents) must stay in the live overlay, and must stay dirty: a link may bring an O_TMPFILE inode back.
package syncer

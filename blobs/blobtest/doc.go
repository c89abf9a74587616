// Package blobtest is the conformance suite of blobs.Store and the harness that runs real S3 servers for it.
//
// [Run] checks every clause of the contract on whatever store a function opens; each driver and each wrapper runs it,
// the S3 drivers against both real servers. [Refusals] checks what a store that cannot work answers.
//
// [Versitygw] and [Rclone] hand a test a fresh bucket on a real server of this machine; [StartVersitygw] and
// [StartRclone] start one without a test, for benchmarks and for tests that stop it. The programs are found in
// $WSFS_TOOLS, the PATH or Go's bin directory, or installed once. Nothing is skipped: no server is a failure.
//
// Only tests and benchmarks import this package.
package blobtest

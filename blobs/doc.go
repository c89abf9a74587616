// Package blobs keeps content in a store: objects, and on top of them packs and chunks.
//
// # Nouns
//
// An object is a byte string under a key. A store is a flat set of objects below one prefix of one bucket or
// directory; [Store] is the contract of its drivers. A [Location] is a parsed store URL. A chunk is content named
// by its hash ([ID]); a pack is an object that holds many chunks; a [Locator] says where in which pack a chunk lies.
//
// # Layering
//
//	open.Store                          the only place besides tests that picks a driver
//	retry                               backoff, the lost reply of a PutIfAbsent
//	limit                               how many requests at once, how many bytes a second
//	(Options.Wrap: count, fault)        what really goes out; planned faults in tests
//	s3  minio  dir  mem                 drivers; s3 and minio share s3/wire
//
// Drivers and wrappers import this package and no other one of ours (drivers of S3 also s3/wire). A wrapper is a
// Store over a Store and has an Unwrap method, so that [ClockSkew] finds what a driver can do beyond the contract.
//
// # Contract
//
// The comments of [Store] are the contract and package blobtest is its proof: every driver and every wrapper passes
// the same suite. What the rest of wsfs builds on:
//
//   - PutIfAbsent is the root of trust. Of any number of concurrent calls exactly one must succeed: that is how one
//     commit number has one owner. [Probe] asks a store whether it really does this; some ignore the header.
//   - A body is stored whole or not at all. No caller ever sees half an object under a key.
//   - Errors are matched with errors.Is against the Err variables and never by text.
//
// # Warnings
//
//   - After ErrUnavailable a write may have happened: the reply can be lost after the store has done the work. Put and
//     Delete may be repeated; PutIfAbsent may be repeated only by something that recognises its own object (package
//     retry does, by content, so bodies that must have one owner carry a nonce).
//   - A key must never be a prefix directory of another ("x" and "x/y"): stores that keep objects as files refuse it.
//   - Get does not verify anything. Whoever reads a chunk hashes it.
//   - Credentials come from the environment and the files the SDKs know, never from the URL: it lands in process
//     lists, configuration and logs. ParseURL refuses a URL that carries one and does not repeat it.
package blobs

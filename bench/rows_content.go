package main

import (
	"context"
	"errors"
	"io"
	"os"
)

// contentRows move file content.
var contentRows = []row{
	{name: "write 64 MiB", run: writeBig},
	{name: "overwrite 64 MiB", setup: writeBig, run: overwriteBig},
	{name: "read 64 MiB warm", setup: writeBig, keep: true, warm: readBig, run: readBig},
	{name: "copy 64 MiB", setup: writeBig, run: copyBig},
	{name: "write+fsync 64 MiB", run: writeBigSynced},
}

const bigFile = "big"

// blockSize is how programs like cp and cat move data.
const blockSize = 128 << 10

func writeBig(ctx context.Context, e *env) error {
	return writeBlocks(ctx, e, os.O_CREATE|os.O_EXCL|os.O_WRONLY, false)
}

func writeBigSynced(ctx context.Context, e *env) error {
	return writeBlocks(ctx, e, os.O_CREATE|os.O_EXCL|os.O_WRONLY, true)
}

func overwriteBig(ctx context.Context, e *env) error {
	return writeBlocks(ctx, e, os.O_WRONLY, false)
}

// writeBlocks writes the big content in blocks.
func writeBlocks(ctx context.Context, e *env, flags int, sync bool) (err error) {
	f, err := os.OpenFile(e.path(bigFile), flags, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for rest := e.in.content(); len(rest) > 0 && ctx.Err() == nil; {
		n := min(len(rest), blockSize)
		if _, err := f.Write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if sync {
		return f.Sync()
	}
	return ctx.Err()
}

func readBig(ctx context.Context, e *env) error {
	f, err := os.Open(e.path(bigFile))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, blockSize)
	var total int
	for ctx.Err() == nil {
		n, err := f.Read(block)
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if want := len(e.in.content()); total != want {
		return errors.Join(ctx.Err(), errors.New("read fewer bytes than were written"))
	}
	return ctx.Err()
}

func copyBig(ctx context.Context, e *env) error {
	return e.command(ctx, "cp", bigFile, "copy")
}

package main

import (
	"context"
	"fmt"
	"os"
)

// nameRows work on names and attributes.
var nameRows = []row{
	{name: "create 1000 (2 KiB)", run: createFiles},
	{name: "stat 1000 warm", setup: createFiles, keep: true, warm: statFiles, run: statFiles},
	{name: "open+read 1000 warm", setup: createFiles, keep: true, warm: readFiles, run: readFiles},
	{name: "rename 1000", setup: createFiles, run: renameFiles},
	{name: "unlink 1000", setup: createFiles, run: unlinkFiles},
	{name: "mkdir tree 1110", run: makeTree},
	{name: "find warm", setup: plantTree, keep: true, warm: findTree, run: findTree},
	{name: "find cold names", setup: plantTree, keep: true, warm: dropNames, run: findTree},
}

func fileName(e *env, i int) string { return e.path(fmt.Sprintf("file-%05d", i)) }

// each calls fn for each of the thousand files.
func each(ctx context.Context, e *env, fn func(i int) error) error {
	for i := range e.in.scaled(1000) {
		if err := fn(i); err != nil {
			return err
		}
		if i%100 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func createFiles(ctx context.Context, e *env) error {
	content := e.in.content()
	return each(ctx, e, func(i int) error {
		at := i * 512 % (len(content) - 2048)
		return os.WriteFile(fileName(e, i), content[at:at+2048], 0o644)
	})
}

func statFiles(ctx context.Context, e *env) error {
	return each(ctx, e, func(i int) error {
		_, err := os.Lstat(fileName(e, i))
		return err
	})
}

func readFiles(ctx context.Context, e *env) error {
	return each(ctx, e, func(i int) error {
		b, err := os.ReadFile(fileName(e, i))
		if err == nil && len(b) != 2048 {
			err = fmt.Errorf("read %d bytes of %s, want 2048", len(b), fileName(e, i))
		}
		return err
	})
}

func renameFiles(ctx context.Context, e *env) error {
	return each(ctx, e, func(i int) error {
		return os.Rename(fileName(e, i), fileName(e, i)+".renamed")
	})
}

func unlinkFiles(ctx context.Context, e *env) error {
	return each(ctx, e, func(i int) error { return os.Remove(fileName(e, i)) })
}

// makeTree makes directories three deep, ten each.
func makeTree(ctx context.Context, e *env) error {
	return eachDir(e, func(dir string) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return os.Mkdir(dir, 0o755)
	})
}

// eachDir calls fn for the directories of the tree, parents first.
func eachDir(e *env, fn func(dir string) error) error {
	width := max(2, e.in.scaled(10))
	for a := range width {
		if err := fn(e.path(fmt.Sprintf("d%d", a))); err != nil {
			return err
		}
		for b := range width {
			if err := fn(e.path(fmt.Sprintf("d%d/d%d", a, b))); err != nil {
				return err
			}
			for c := range width {
				if err := fn(e.path(fmt.Sprintf("d%d/d%d/d%d", a, b, c))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// plantTree makes the same directories with ten small files in each.
func plantTree(ctx context.Context, e *env) error {
	return eachDir(e, func(dir string) error {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for i := range 10 {
			if err := os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), []byte(dir), 0o644); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

func findTree(ctx context.Context, e *env) error {
	// -size makes find stat every file.
	return e.command(ctx, "find", ".", "-type", "f", "-size", "+1000")
}

// dropNames empties the kernel's caches of names and inodes.
func dropNames(context.Context, *env) error {
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)
}

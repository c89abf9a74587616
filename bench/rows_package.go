package main

import (
	"context"
	"fmt"
	"os"

	"wsfs/e2e/fixture"
)

// packageRows handle a real node_modules: 15,000 files.
var packageRows = []row{
	{name: "npm install", setup: npmProject, run: npmInstall},
	{name: "untar 15000 files", setup: needTar, run: untar},
	{name: "rm -rf node_modules", setup: untar, run: removeModules},
}

func npmProject(ctx context.Context, e *env) error {
	if _, err := e.in.npm(ctx); err != nil {
		return err
	}
	if err := os.Mkdir(e.path("project"), 0o755); err != nil {
		return err
	}
	return e.in.project().Write(e.path("project"))
}

func npmInstall(ctx context.Context, e *env) error {
	cache, err := e.in.npm(ctx)
	if err != nil {
		return err
	}
	if out, err := fixture.NPM(ctx, e.path("project"), cache, true).CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, tail(out))
	}
	return nil
}

func needTar(ctx context.Context, e *env) error {
	_, err := e.in.tar(ctx)
	return err
}

func untar(ctx context.Context, e *env) error {
	file, err := e.in.tar(ctx)
	if err != nil {
		return err
	}
	return e.command(ctx, "tar", "-xf", file)
}

func removeModules(ctx context.Context, e *env) error {
	return e.command(ctx, "rm", "-rf", "node_modules")
}

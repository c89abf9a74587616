package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// gitRows run git on real sources.
var gitRows = []row{
	{name: "git init + commit 100 files", setup: plantSources(100), run: gitInitCommit},
	{name: "git clone local", setup: gitHistory, run: gitClone},
	{name: "git status warm", setup: gitHistory, keep: true, warm: gitStatus, run: gitStatus},
}

// gitArgs make git independent of the machine's configuration and keep it from working on after it has returned.
var gitArgs = []string{"-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "gc.auto=0",
	"-c", "maintenance.auto=false", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}

func git(ctx context.Context, e *env, dir string, args ...string) error {
	return e.commandIn(ctx, dir, nil, "git", append(append([]string{}, gitArgs...), args...)...)
}

// plantSources copies n real source files into repo/, each below a numbered directory of twenty.
func plantSources(n int) step {
	return func(ctx context.Context, e *env) error {
		files, err := e.in.sources(ctx)
		if err != nil {
			return err
		}
		for i, file := range files[:min(max(2, e.in.scaled(n)), len(files))] {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			dir := e.path("repo", fmt.Sprintf("p%03d", i/20))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d-%s", i%20, filepath.Base(file))), text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

func gitInitCommit(ctx context.Context, e *env) error {
	repo := e.path("repo")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "all"}} {
		if err := git(ctx, e, repo, args...); err != nil {
			return err
		}
	}
	return nil
}

// gitHistory makes a repository of 1,000 files in twenty commits.
func gitHistory(ctx context.Context, e *env) error {
	if err := plantSources(1000)(ctx, e); err != nil {
		return err
	}
	repo := e.path("repo")
	if err := git(ctx, e, repo, "init", "-q"); err != nil {
		return err
	}
	dirs, err := filepath.Glob(e.path("repo", "p*"))
	if err != nil {
		return err
	}
	per := max(1, len(dirs)/20)
	for at := 0; at < len(dirs); at += per {
		args := append([]string{"add"}, dirs[at:min(at+per, len(dirs))]...)
		if err := git(ctx, e, repo, args...); err != nil {
			return err
		}
		if err := git(ctx, e, repo, "commit", "-q", "-m", "more"); err != nil {
			return err
		}
	}
	return nil
}

func gitClone(ctx context.Context, e *env) error {
	return git(ctx, e, e.dir, "clone", "-q", "repo", "clone")
}

func gitStatus(ctx context.Context, e *env) error {
	return git(ctx, e, e.path("repo"), "status", "--porcelain")
}

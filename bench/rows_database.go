package main

import (
	"context"
	"fmt"
	"strings"
)

// databaseRows run sqlite with a durable transaction per insert.
var databaseRows = []row{
	{name: "sqlite 1000 transactions", run: transactions("delete")},
	{name: "sqlite 1000 transactions WAL", run: transactions("wal")},
}

// transactions inserts a row per transaction, each synced.
func transactions(journal string) step {
	return func(ctx context.Context, e *env) error {
		var script strings.Builder
		fmt.Fprintf(&script, "PRAGMA journal_mode=%s;\nPRAGMA synchronous=FULL;\nCREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\n", journal)
		for i := range e.in.scaled(1000) {
			fmt.Fprintf(&script, "INSERT INTO t(v) VALUES('value number %d');\n", i)
		}
		return e.commandIn(ctx, e.dir, []byte(script.String()), "sqlite3", "-bail", "bench.db")
	}
}

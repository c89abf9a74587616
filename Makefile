# Everything a person or the CI runs. `make test` is the whole check; `make demo` shows the main job.

GO       ?= go
BIN      := bin
# Packages whose tests build and drive the commands: the race detector there would watch only the test itself.
DRIVING  := wsfs/bench wsfs/cmd/% wsfs/e2e
PACKAGES  = $(shell $(GO) list ./...)
TIMEOUT  ?= 30m

.PHONY: build test test-race test-driving race lint demo bench e2e-long clean

build:
	$(GO) build -o $(BIN)/ ./cmd/wsfs ./cmd/wsctl

test: lint test-race test-driving

# Unit, property, conformance and mount tests, all under the race detector. Real S3 servers are started by the tests.
test-race:
	$(GO) test -race -timeout $(TIMEOUT) $(filter-out $(DRIVING),$(PACKAGES))

# Tests that drive the built commands, one package at a time: they measure times.
test-driving:
	$(GO) test -p 1 -timeout $(TIMEOUT) $(filter $(DRIVING),$(PACKAGES))

race:
	$(GO) test -race -timeout $(TIMEOUT) ./...

lint:
	@unformatted=$$(find . -name '*.go' -not -path './.*' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "gofmt needed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

demo: build
	./demo.sh $(BIN)

# BENCHFLAGS="--rounds 3 --rows 'write 64 MiB,npm install'" narrows it; see docs/performance.md.
bench: build
	$(GO) run ./bench --wsfs $(BIN)/wsfs --wsctl $(BIN)/wsctl $(BENCHFLAGS)

# The full round trip, kill, outage and cold-open tests: an hour and tens of GiB of disk.
e2e-long:
	$(GO) test -v -timeout 120m ./e2e -full

clean:
	rm -rf $(BIN)

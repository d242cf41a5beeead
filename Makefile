# Everything that is done with this repository starts here. `make` alone lists the targets.
#
# Each target does its own set-up: what is missing is installed by scripts/setup, which says so, and which takes no time
# when nothing is missing. Cargo always runs with --locked: what is built is what the lock file says.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# The steps build on each other, and cargo uses all processors by itself.
.NOTPARALLEL:

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# Tools that scripts/setup has built (cargo-deny, cargo-nextest, mdbook) are in .tools, not in the user's ~/.cargo/bin.
export PATH := $(CURDIR)/.tools/bin:$(PATH)
# Passed to `muster up` by `make demo`, to the benchmark by `make bench`, to the test runner by `make test`; for `make fuzz`,
# inputs to repeat.
ARGS ?=

comma := ,
step = @printf '\n== %s\n' '$(1)'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Using it

.PHONY: demo
demo: ## a fleet of four nodes on this machine (ARGS=--once: exit when it is validated)
	$(call step,set-up)
	@scripts/setup demo
	$(call step,build (release))
	cargo build --locked --release -p muster-cli -p muster-agent
	$(call step,muster up examples/quickstart $(ARGS))
	@$(TARGET_DIR)/release/muster up examples/quickstart $(ARGS)

.PHONY: bench
bench: ## build in release mode and print the table of speed and memory
	$(call step,set-up)
	@scripts/setup bench
	$(call step,build (release))
	cargo build --locked --release -p muster-cli -p muster-agent -p muster-bench
	$(call step,benchmarks)
	@$(TARGET_DIR)/release/muster-bench $(ARGS)

## Checking it

.PHONY: test
test: setup lint build simulate mutants ## everything: lints and all tests, with the real Puppet and the real etcd
	$(call step,tests: all of them)
	cargo nextest run --locked --workspace $(ARGS)
	$(call step,tests: examples in the documentation)
	cargo test --locked --workspace --doc --quiet
	$(call step,all passed)

# The whole workspace is built, as for the tests: so nothing is compiled twice.
.PHONY: simulate
simulate: build ## play the stories in scenarios/, and compare how they are told with how they were
	$(call step,scenarios)
	@$(TARGET_DIR)/debug/muster-sim scenarios/*.txt

# The plan is printed first, and again what is done before it is done. SEED repeats a plan.
SEED ?=
MINUTES ?= 10
# Stories of the simulator that `make test` does not tell: others each time, or those of SEED.
STORIES ?= 20000

.PHONY: soak
soak: setup build ## fleets on etcd under random faults, with rollouts and without, and more stories of the simulator (SEED=…, MINUTES=…, STORIES=…)
	$(call step,soak: $(STORIES) stories of the simulator)
	MUSTER_SIM_BASE=$(or $(SEED),$(shell date +%s)) MUSTER_SIM_SEEDS=$(STORIES) \
		cargo nextest run --locked --workspace --profile soak --success-output final -E 'binary(seeds) and test(part)'
	$(call step,soak: $(MINUTES) minutes$(comma) and $(MINUTES) with rollouts)
	MUSTER_SOAK_SEED=$(SEED) MUSTER_SOAK_MINUTES=$(MINUTES) \
		cargo nextest run --locked --workspace --profile soak --no-capture -E 'binary(cluster) and test(random_order)'

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## feed the loader of designs with changed files for a minute (FUZZ_SECONDS=… is how long)
	$(call step,set-up)
	@scripts/setup fuzz
	$(call step,fuzz: $(FUZZ_SECONDS) seconds)
	@scripts/fuzz $(FUZZ_SECONDS) $(ARGS)

# One more build, of the simulator alone: everything that it does not compile itself is there already.
.PHONY: mutants
mutants: build ## take the guards of a rollout away, one at a time: each has to be missed (ARGS=--update: look for other seeds)
	$(call step,mutants)
	@$(TARGET_DIR)/debug/muster-mutants $(if $(filter mutants,$(MAKECMDGOALS)),$(ARGS))

.PHONY: check
check: setup lint ## what to run before each commit: lints and the tests that start no fleet
	$(call step,tests: all but the end-to-end ones)
	cargo nextest run --locked --workspace --profile fast $(ARGS)
	$(call step,all passed)

.PHONY: lint
lint: setup
	$(call step,format)
	cargo fmt --all --check
	$(call step,clippy)
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(call step,licences$(comma) bans and sources of the dependencies)
	cargo deny --locked check --hide-inclusion-graph bans licenses sources

# The end-to-end tests start the real `muster` and `muster-agent`, which they find beside themselves. One build of all
# targets, so that the features of the dependencies are the same everywhere and nothing is compiled twice.
.PHONY: build
build: setup
	$(call step,build)
	cargo build --locked --workspace --all-targets

.PHONY: fresh
fresh: ## prove on an empty Debian that `make demo` and `make test` need nothing else (root; takes long)
	@scripts/setup fresh
	@scripts/fresh

.PHONY: audit
audit: setup ## look the dependencies up in the advisory database of today (needs the network)
	cargo deny --locked check advisories

## Working on it

.PHONY: setup
setup: ## install what is missing for all of the above
	$(call step,set-up)
	@scripts/setup test

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all

.PHONY: reference
reference: ## write the pages of the book, the OpenAPI document and the schemas anew that are made from the code
	UPDATE_FINDINGS=1 UPDATE_DOCUMENTS=1 cargo nextest run --locked -p muster-design -E 'test(real_ones)'
	UPDATE_OPENAPI=1 UPDATE_CLI_REFERENCE=1 cargo nextest run --locked -p muster-server -p muster-cli -E 'test(openapi) + test(reference)'

.PHONY: docs
docs: ## build the book into target/book
	$(call step,set-up)
	@scripts/setup docs
	$(call step,book)
	mdbook build docs --dest-dir $(abspath $(TARGET_DIR))/book
	@echo "open $(abspath $(TARGET_DIR))/book/index.html"

# Entry point for building, testing and running Muster. `make` alone lists the targets.
#
# Each target does its own set-up: scripts/setup installs missing tools with a message, and takes no time when nothing is
# missing. Cargo always runs with --locked.

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
# Determines 9,000 of the simulator's seeds. The test reads it when it runs, so that a commit rebuilds nothing.
export MUSTER_SIM_COMMIT := $(or $(MUSTER_SIM_COMMIT),$(shell git rev-parse --verify --quiet HEAD 2>/dev/null))

comma := ,
# Announces a step. The times of the steps are printed at the end.
STEPS := $(TARGET_DIR)/steps
$(shell rm -f $(STEPS))
step = @mkdir -p $(TARGET_DIR) && printf '%s %s\n' "$$(date +%s)" '$(1)' >>$(STEPS) && printf '\n== %s\n' '$(1)'
passed = @scripts/step-times <$(STEPS) && printf '\n== all passed\n'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Run

# The two binaries, with the features of a test build: one small test among the targets makes cargo activate them. `make demo`
# and `make test` then share every library.
SHARED_BINARIES = --workspace --bin muster --bin muster-agent --test real_processes

.PHONY: demo
demo: ## a fleet of four nodes on this machine (ARGS=--once: exit when it is validated)
	$(call step,set-up)
	@scripts/setup demo
	$(call step,build (some minutes$(comma) once))
	cargo build --locked $(SHARED_BINARIES)
	$(call step,muster up examples/quickstart $(ARGS))
	@$(TARGET_DIR)/debug/muster up examples/quickstart $(ARGS)

# As in scripts/packages.
STATIC_TARGET = x86_64-unknown-linux-gnu
STATIC_AGENT = RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile agent --target $(STATIC_TARGET) -p muster-agent

.PHONY: bench
bench: ## build in release mode and print the table of speed and memory
	$(call step,set-up)
	@scripts/setup bench
	$(call step,build (release; the agent as in its package))
	cargo build --locked --release -p muster-cli -p muster-bench
	$(STATIC_AGENT)
	@mkdir -p $(TARGET_DIR)/bench && ln -f $(TARGET_DIR)/release/muster $(TARGET_DIR)/$(STATIC_TARGET)/agent/muster-agent $(TARGET_DIR)/bench/
	$(call step,benchmarks)
	@$(TARGET_DIR)/release/muster-bench --programs $(TARGET_DIR)/bench $(ARGS)

.PHONY: packages
packages: ## build muster, muster-server and muster-agent as .deb and .rpm into target/packages
	$(call step,set-up)
	@scripts/setup packages
	$(call step,packages)
	@scripts/packages $(ARGS)

## Check

.PHONY: test
test: setup lint build simulate mutants ## lints and all tests, with real Puppet and real etcd
	$(call step,tests: all)
	cargo nextest run --locked --workspace $(ARGS)
	$(call step,tests: examples in the documentation)
	cargo test --locked --workspace --doc --quiet
	$(passed)

# Builds the whole workspace, as for the tests, so that nothing is compiled twice.
.PHONY: simulate
simulate: build ## run the scenarios in scenarios/, and compare their transcripts
	$(call step,scenarios)
	@$(TARGET_DIR)/debug/muster-sim scenarios/*.txt

# The plan is printed first, and each step before it is taken. SEED repeats a plan.
SEED ?=
MINUTES ?= 10
# Number of simulator seeds beyond those of `make test`: new ones each time, or those that follow from SEED. STORIES is
# the old name.
STORIES ?= 20000
SEEDS ?= $(STORIES)

.PHONY: soak
soak: setup build ## fleets on etcd under random faults, and more seeds of the simulator (SEED=…, MINUTES=…, SEEDS=…)
	$(call step,soak: $(SEEDS) seeds of the simulator)
	MUSTER_SIM_BASE=$(or $(SEED),$(shell date +%s)) MUSTER_SIM_SEEDS=$(SEEDS) \
		cargo nextest run --locked --workspace --profile soak --success-output final -E 'binary(seeds) and test(part)'
	$(call step,soak: $(MINUTES) minutes$(comma) and $(MINUTES) with rollouts)
	MUSTER_SOAK_SEED=$(SEED) MUSTER_SOAK_MINUTES=$(MINUTES) \
		cargo nextest run --locked --workspace --profile soak --no-capture -E 'binary(cluster) and test(random_order)'

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## fuzz the loader of designs for a minute (FUZZ_SECONDS=…)
	$(call step,set-up)
	@scripts/setup fuzz
	$(call step,fuzz: $(FUZZ_SECONDS) seconds)
	@scripts/fuzz $(FUZZ_SECONDS) $(ARGS)

.PHONY: fuzz-api
fuzz-api: ## send generated requests to every operation of a server for a minute (FUZZ_SECONDS=…, ARGS='--seed 7')
	$(call step,set-up)
	@scripts/setup fuzz-api
	$(call step,build)
	cargo build --locked $(SHARED_BINARIES)
	$(call step,fuzz the API: $(FUZZ_SECONDS) seconds)
	@scripts/fuzz-api $(FUZZ_SECONDS) $(ARGS)

# Builds the simulator once more; all dependencies are reused.
.PHONY: mutants
mutants: build ## switch each guard off: a test must catch each mutant (ARGS=--update: search for new seeds)
	$(call step,mutants)
	@$(TARGET_DIR)/debug/muster-mutants $(if $(filter mutants,$(MAKECMDGOALS)),$(ARGS))

.PHONY: check
check: setup lint ## before each commit: lints and the tests that start no fleet
	$(call step,tests: all but end-to-end)
	cargo nextest run --locked --workspace --profile fast $(ARGS)
	$(passed)

.PHONY: lint
lint: setup
	$(call step,format)
	cargo fmt --all --check
	$(call step,clippy)
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(call step,licences$(comma) bans and sources of the dependencies)
	cargo deny --locked check --hide-inclusion-graph bans licenses sources

# The end-to-end tests start `muster` and `muster-agent` from the target directory. One build of all targets gives the
# dependencies the same features everywhere, so that nothing is compiled twice.
.PHONY: build
build: setup
	$(call step,build)
	cargo build --locked --workspace --all-targets

# The client and the server are those of the tests, the agent is the static one.
.PHONY: acceptance
acceptance: ## install the packages on three systemd hosts, join, roll out, upgrade, revoke (needs root)
	$(call step,set-up)
	@scripts/setup acceptance
	$(call step,build)
	cargo build --locked $(SHARED_BINARIES)
	$(call step,acceptance)
	@scripts/acceptance

.PHONY: fresh
fresh: ## run `make demo` and `make test` on an empty Debian, in a chroot (needs root; slow)
	@scripts/setup fresh
	@scripts/fresh

.PHONY: audit
audit: setup ## check the dependencies against today's advisory database (needs the network)
	cargo deny --locked check advisories

## Develop

.PHONY: setup
setup: ## install the tools that `make test` needs
	$(call step,set-up)
	@scripts/setup test

.PHONY: fmt
fmt: ## format the code
	cargo fmt --all

.PHONY: reference
reference: ## regenerate pages of the book, the OpenAPI document and the schemas
	UPDATE_FINDINGS=1 UPDATE_DOCUMENTS=1 cargo nextest run --locked -p muster-design -E 'test(pages_are_current)'
	UPDATE_OPENAPI=1 UPDATE_CLI_REFERENCE=1 UPDATE_AUTHORIZATION=1 cargo nextest run --locked -p muster-server -p muster-cli \
		-E 'test(openapi) + test(reference) + test(page_of_the_book)'

.PHONY: docs
docs: ## build the book into target/book
	$(call step,set-up)
	@scripts/setup docs
	$(call step,book)
	mdbook build docs --dest-dir $(abspath $(TARGET_DIR))/book
	@echo "open $(abspath $(TARGET_DIR))/book/index.html"

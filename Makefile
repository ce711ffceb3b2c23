# `make demo` and `make test` need nothing beforehand but Python, Java and Rust: set-up is part of them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
CARGO := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)
FUZZ_TARGETS := $(basename $(notdir $(filter-out %/log.rs,$(wildcard core/fuzz/fuzz_targets/*.rs))))
# Files of tests side by side: they wait for servers much of the time. Each worker has a MySQL and a Spark of its own.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
export PYTHONPATH := $(CURDIR)/src

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup  ## A private MySQL streamed into an Iceberg table, with crashes, verified (about 3 minutes)
	@$(BIN)/penstock demo $(ARGS)

test: setup  ## The tests, without the slow ones (ARGS="-k name" chooses)
	cd core && $(CARGO) test --release --quiet
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(ARGS)

test-all: setup  ## All tests, also the slow ones; PART=servers runs one part, an hour at most (tests/parts.py)
	$(if $(filter-out units,$(PART)),,cd core && $(CARGO) test --release --quiet)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(if $(PART),--part $(PART)) $(ARGS)

bench: setup  ## Penstock and its peers on the same logs (PARTS, WORKLOADS, PEERS, SCALE, ROWS: docs/performance.md)
	@$(BIN)/python -m bench.run $(if $(PARTS),--parts "$(PARTS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)") \
		$(if $(PEERS),--peers "$(PEERS)") $(if $(SCALE),--scale $(SCALE)) $(if $(ROWS),--rows $(ROWS)) $(ARGS)

chaos: setup  ## Faults by seed: SEEDS=1-20 (MINUTES, KINDS="power-loss net", WORKERS, SHOW=17: docs/chaos.md)
	@$(BIN)/python -m tests.chaos.run $(if $(SHOW),--show $(SHOW)) --seeds "$(or $(SEEDS),1-20)" \
		$(if $(KINDS),--kinds "$(KINDS)") $(if $(MINUTES),--minutes $(MINUTES)) \
		--workers $(if $(filter command line environment,$(origin WORKERS)),$(WORKERS),2) $(ARGS)

instructions:  ## Instructions the core needs for a row image, against core/bench/instructions.json (needs valgrind)
	@python3 scripts/instructions.py $(ARGS)

lint:  ## ruff, mypy --strict, rustfmt, clippy
	@scripts/setup --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd core && $(CARGO) fmt --check
	cd core && $(CARGO) clippy --release --all-targets --features python --quiet -- -D warnings

fuzz:  ## Any bytes into the core, SECONDS=60 for each target (TARGETS="rows json" chooses; see CONTRIBUTING.md)
	@python3 core/fuzz/seeds.py
	cd core && $(CARGO) +nightly fuzz build
	@cd core && for target in $(or $(TARGETS),$(FUZZ_TARGETS)); do echo "== $$target" && \
		$(CARGO) +nightly fuzz run $$target -- -verbosity=0 -print_final_stats=1 -max_total_time=$(or $(SECONDS),60) \
		-timeout=5 -rss_limit_mb=512 -malloc_limit_mb=128 -max_len=65536 || exit 1; done

core:  ## Only the Rust core, for work on it: cargo build, then into src/penstock
	cd core && $(CARGO) build --release --features python
	@cp core/target/release/libpenstock_core.so src/penstock/.core.new
	@mv -f src/penstock/.core.new src/penstock/_core.abi3.so

docs: setup  ## The docs site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo site/index.html

wheel: setup  ## The package that users install, for Linux with glibc 2.28 or newer, into dist/ (DIST=folder)
	@scripts/wheel $(or $(DIST),dist)

setup:  ## What the others do first: .venv, the built core, servers and jars
	@scripts/setup

clean:  ## Remove what was built here (downloads stay in ~/.cache/penstock)
	rm -rf .venv dist site core/target src/penstock/_core*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help demo test test-all bench chaos instructions lint fuzz core docs wheel setup clean

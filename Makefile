# `make demo` and `make test` need nothing beforehand but Python, Java and Rust: set-up is part of them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
CARGO := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)
FUZZ_TARGETS := $(basename $(notdir $(filter-out %/log.rs,$(wildcard core/fuzz/fuzz_targets/*.rs))))
# Files of tests side by side, at most four. Each worker has a MySQL, and one for each core a Spark of its own
# (tests/side_by_side.py). Those of quick tests wait a third of the time, so there are two more than cores.
CORES := $(shell nproc)
side_by_side = -n $(or $(WORKERS),$(shell echo $$(($(1) < 4 ? $(1) : 4)))) --dist loadfile --no-loadscope-reorder
export PYTHONPATH := $(CURDIR)/src
# Images of containers set this. The hundreds of processes of a test run would each compile every file again.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show this list
	@awk -F '  ## | [|] ' '/^[a-z-]+:.*  ## / {name = $$1; sub(/:.*/, "", name); printf "  make %-12s %s\n", name, $$2; \
		if ($$3) printf "  %-17s   %s\n", "", $$3}' $(MAKEFILE_LIST)

demo: setup  ## Stream a private MySQL into an Iceberg table, with crashes, and verify it: about 3 minutes | ARGS="--rows 50000"
	@$(BIN)/penstock demo $(ARGS)

test: setup  ## Run the quick tests, of Rust and Python | ARGS="-k name" WORKERS=2
	cd core && $(CARGO) test --profile quick --quiet
	$(BIN)/python -m pytest $(call side_by_side,$(CORES) + 2) -m "not slow" $(ARGS)

test-all: setup  ## Run all tests, also the slow ones, or one part of them | PART=servers (parts: tests/parts.py) ARGS WORKERS
	$(if $(filter-out units,$(PART)),,cd core && $(CARGO) test --profile quick --quiet)
	$(BIN)/python -m pytest $(call side_by_side,$(CORES)) $(if $(PART),--part $(PART)) $(ARGS)

bench: setup  ## Measure Penstock and its peers on the same logs | PARTS WORKLOADS PEERS SCALE ROWS (docs/performance.md)
	@$(BIN)/python -m bench.run $(if $(PARTS),--parts "$(PARTS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)") \
		$(if $(PEERS),--peers "$(PEERS)") $(if $(SCALE),--scale $(SCALE)) $(if $(ROWS),--rows $(ROWS)) $(ARGS)

chaos: setup  ## Run whole pipelines under random faults, repeatable by seed | SEEDS=1-20 MINUTES=60 KINDS="power-loss net" SHOW=17 (docs/chaos.md)
	@$(BIN)/python -m tests.chaos.run $(if $(SHOW),--show $(SHOW)) --seeds "$(or $(SEEDS),1-20)" \
		$(if $(KINDS),--kinds "$(KINDS)") $(if $(MINUTES),--minutes $(MINUTES)) \
		--workers $(if $(filter command line environment,$(origin WORKERS)),$(WORKERS),2) $(ARGS)

instructions:  ## Count the CPU instructions of the core and compare them with the committed counts: needs valgrind | ARGS=--renew
	@python3 scripts/instructions.py $(ARGS)

lint:  ## Check form and types: ruff, mypy --strict, rustfmt, clippy
	@scripts/setup --lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd core && $(CARGO) fmt --check
	cd core && $(CARGO) clippy --release --all-targets --features python --quiet -- -D warnings

fuzz:  ## Feed random bytes to the parsers of the core: needs nightly Rust and cargo-fuzz | SECONDS=60 TARGETS="rows json"
	@python3 core/fuzz/seeds.py
	cd core && $(CARGO) +nightly fuzz build
	@cd core && for target in $(or $(TARGETS),$(FUZZ_TARGETS)); do echo "== $$target" && \
		$(CARGO) +nightly fuzz run $$target -- -verbosity=0 -print_final_stats=1 -max_total_time=$(or $(SECONDS),60) \
		-timeout=5 -rss_limit_mb=512 -malloc_limit_mb=128 -max_len=65536 || exit 1; done

core:  ## Build only the Rust core, into src/penstock | PROFILE=quick (compiles faster, runs slower)
	cd core && $(CARGO) build --profile $(or $(PROFILE),release) --features python
	@cp core/target/$(or $(PROFILE),release)/libpenstock_core.so src/penstock/.core.new
	@mv -f src/penstock/.core.new src/penstock/_core.abi3.so

docs: setup  ## Build the docs site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo site/index.html

wheel:  ## Build the package that users install, for Linux with glibc 2.28 or newer | DIST=dist
	@scripts/wheel $(or $(DIST),dist)

setup:  ## Prepare the tree: .venv, the core, test servers, Spark's jars. The other targets do this first
	@scripts/setup

clean:  ## Remove what was built here; downloads stay in ~/.cache/penstock
	rm -rf .venv .wheel-tools dist site core/target src/penstock/_core*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help demo test test-all bench chaos instructions lint fuzz core docs wheel setup clean

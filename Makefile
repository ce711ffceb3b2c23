# Placeholder until the bootstrap lands.
PY := .venv/bin/python
core:
	cd core && cargo build --release --features python
	cp core/target/release/libpenstock_core.so src/penstock/_core.abi3.so
.PHONY: core

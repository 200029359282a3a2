# `make demo` shows what SnoozeML does; `make test` proves it. Both install what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODELS := demo/models
ADVISORIES ?= https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip

# onnxruntime's official builds report to their vendor unless told not to.
export ORT_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo run check test fuzz audit soak bench golden proto docs clean

help: ## List the targets.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8

venv: $(INSTALLED) ## Make the virtual environment, again only if its inputs have changed.

$(INSTALLED): pyproject.toml constraints.txt scripts/venv.sh
	scripts/venv.sh $(VENV) $(PYTHON)
	@touch $@

demo: $(INSTALLED) ## Three sample models: woken, asked, and let sleep again.
	$(BIN)/python examples/demo.py

run: $(INSTALLED) ## Serve the sample models on port 8080.
	$(BIN)/python examples/sample_models.py $(MODELS)
	$(BIN)/snooze serve --models-dir $(MODELS)

check: $(INSTALLED) ## The gate for every commit: format, lint, types, import contracts, unit tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit

test: check ## Everything: check, then whole workers, whole daemons, and the documentation.
	$(BIN)/pytest tests --ignore=tests/unit --numprocesses 2 --dist loadfile

fuzz: $(INSTALLED) ## 250,000 damaged inputs for all parsers that read what others wrote.
	FUZZ_INPUTS=11000 $(BIN)/pytest tests/fuzz --capture=no

audit: $(INSTALLED) ## Look all pinned releases up among the known vulnerabilities.
	$(BIN)/python scripts/audit.py constraints.txt $(ADVISORIES)

soak: $(INSTALLED) ## Ten minutes of killed and hung workers and failing loads under mixed traffic.
	PYTHONPATH=tests $(BIN)/python -m e2e.chaos --minutes 10

bench: $(INSTALLED) ## Measure against a bare HTTP server, on this machine, in one run.
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	    --editable '.[bench]'
	$(BIN)/python -m benchmarks

golden: ## Ask the reference libraries again for the answers that tests compare with.
	scripts/golden.sh build/golden $(PYTHON)

proto: $(INSTALLED) ## Generate the code of the .proto files anew.
	$(BIN)/python scripts/proto.py src/snoozeml/wire/proto

docs: $(INSTALLED) ## Write the generated pages of docs/ anew.
	$(BIN)/python -m snoozeml.cli.reference > docs/cli.md
	PYTHONPATH=tests $(BIN)/python -m golden.safetensors.table

clean: ## Remove everything that make made.
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

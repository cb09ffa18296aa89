# Every target sets up its own .venv on first use and reuses it after; only python3 (3.11) and make are assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

export FLWR_TELEMETRY_ENABLED := 0
export NO_MKDOCS_2_WARNING := 1
ifneq ($(wildcard ../shared/data/.),)
export FEDKGE_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-all check docs tables bench clean

demo: $(VENV)/.ready
	rm -rf demo
	$(BIN)/fedkge compare --engine ray --strategies Local,FedE,FedR --seeds 5 --target-mrr 0.4 --out demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-all: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

docs: $(VENV)/.ready
	$(BIN)/mkdocs build --strict --quiet

tables: $(VENV)/.ready
	$(BIN)/python docs/write_tables.py

bench: $(VENV)/.ready
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "fedkge needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing fedkge and what it needs into $(VENV) (a few minutes the first time) ..."
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

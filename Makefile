# Everything runs in .venv, which is rebuilt when the dependencies change.
PYTHON ?= python3
BIN := .venv/bin
# One more than there are cores: tests of processes that are killed, clusters and browsers mostly wait.
WORKERS = $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

# Tests start hundreds of processes, each of which would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce test test-all faults system-tools lint bench docs release-check
reproduce: .venv/ready
	$(BIN)/actiongap reproduce all --scale laptop --out out

# The short tests; each behaviour has at least one.
test: .venv/ready
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

# Every test.
test-all: .venv/ready
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --long

# Attacks on files, folders, processes and options, which are tests too, and a table of them.
faults: .venv/ready
	$(BIN)/python -m tests.faults -n $(WORKERS) --dist loadfile --out results/faults

# Programs that `make test-all` needs where CI is set: strace makes system calls fail.
system-tools:
	command -v strace || { sudo apt-get update --quiet && sudo apt-get install --yes --quiet strace; }

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	@report=$$(PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --verifytypes actiongap --ignoreexternal) || { echo "$$report"; exit 1; }

bench: .venv/ready
	$(BIN)/python -m benchmarks finite
	$(BIN)/python -m benchmarks grid
	$(BIN)/python -m benchmarks deep
	$(BIN)/python -m benchmarks atari

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html."

# Builds the package, and tries it alone and with each extra in fresh environments: some minutes, and a gigabyte or two in /tmp.
release-check:
	$(PYTHON) tools/check_release.py

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

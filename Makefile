# Every target sets up what it needs: a fresh machine with Python >= 3.11, make and git is enough.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test check generate fix bench-recovery chaos e2e clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml hack/setup
	@hack/setup "$(PYTHON)" "$(VENV)"

demo: $(READY) ## a whole job on this machine: apply, train, kill, scale, suspend, succeed (about 2 minutes; writes report.html)
	@$(BIN)/elasticjob demo --report report.html

test: $(READY) ## all tests that need nothing but Python packages (kubectl is used where it is on PATH)
	$(BIN)/pytest

check: $(READY) ## lint, types, arrows, generated files: what pre-commit and CI run
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python hack/generate.py --check

generate: $(READY) ## write config/crd and api/core from their sources
	$(BIN)/python hack/generate.py

fix: $(READY) ## format, and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-recovery: $(READY) ## standstill after a kill, a lost node, a join; torchrun beside us
	$(BIN)/python -m benchmarks.recovery

chaos: $(READY) ## kill -9 operator, master, agents at random moments, 20 rounds
	$(BIN)/python -m benchmarks.chaos

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist report.html

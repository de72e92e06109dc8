# Everything a newcomer runs. It needs Python 3.11+, git and make; the rest is downloaded once.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Use the system's Python, never a downloaded one, and the system's certificates, for networks with a private CA.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := 1
# `make pythons` uses one environment per interpreter: make check VENV=.venvs/x UV_PYTHON=/path.
VENV := .venv
export UV_PROJECT_ENVIRONMENT := $(VENV)
# The caller's virtual environment and PYTHONPATH must not leak in.
unexport VIRTUAL_ENV
unexport PYTHONPATH

PYTHON := $(VENV)/bin/python
PYTEST := $(VENV)/bin/python -m pytest
READY := $(VENV)/.ready
# The libraries we benchmark against bring pytest plugins, so they get a separate environment.
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
MINUTES ?= 10
# Two test processes suit a small machine.
WORKERS ?= 2

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## create .venv from the lock file (downloads uv if it is missing)

# Rebuilt when the lock changes; every other target depends on this stamp.
$(READY): pyproject.toml uv.lock
	@tools/uv.sh sync --frozen --quiet
	@touch $@

$(BENCH_READY): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(BENCH_VENV) tools/uv.sh sync --frozen --quiet --group bench
	@touch $@

.PHONY: run
run: $(READY) ## a 30-second demo: an agent is killed mid-run and resumes
	@$(PYTHON) examples/story.py

# tools/stages.py runs every stage and prints a summary table.
STATIC := lint '$(VENV)/bin/ruff check --output-format concise .' \
	format '$(VENV)/bin/ruff format --check .' \
	mypy '$(VENV)/bin/mypy' \
	pyright '$(VENV)/bin/basedpyright --pythonpath $(PYTHON)' \
	surface '$(PYTHON) tools/surface.py'
PARALLEL := $(PYTEST) -n $(WORKERS) --dist worksteal
EMBEDDED := memory sqlite

.PHONY: check
check: $(READY) ## lint, types, tidy, unit and conformance on the embedded engines (under 2 min)
	@$(PYTHON) tools/stages.py $(STATIC) \
		tests '$(PARALLEL) tests/tidy tests/unit tests/conformance $(EMBEDDED:%=--perdure-provider %)'

.PHONY: test
test: $(READY) ## everything: check, all tests on five engines, the cases under python -O, a sample of planted bugs
	@$(PYTHON) tools/stages.py $(STATIC) \
		tests '$(PARALLEL) tests' \
		optimized '$(PYTHON) -O -m perdure.testkit.matrix $(EMBEDDED)' \
		planted '$(PYTHON) tests/planted/run.py --after-tests --sample 60'

.PHONY: planted
planted: $(READY) ## plant every bug in a copy of the source; the tests must catch each (after make test; ten minutes)
	@$(PYTHON) tests/planted/run.py --after-tests

.PHONY: urls
urls: $(READY) ## the URL tests of every engine
	@$(PARALLEL) -m urls tests/unit tests/engines tests/cli

.PHONY: pythons
pythons: $(READY) ## check and urls on every installed CPython (PATH, pyenv, system); ENDS=1: only the oldest and newest
	@$(PYTHON) tools/pythons.py $(if $(ENDS),--ends)

.PHONY: matrix
matrix: $(READY) ## capability x engine, with the conformance cases passed in each cell
	@$(PYTHON) -m tests.support.matrix

.PHONY: bench
bench: $(BENCH_READY) ## measure against raw sqlite3, OpenAI Agents and LangGraph in one run
	@$(BENCH_VENV)/bin/python bench/run.py

.PHONY: bench-servers
bench-servers: $(BENCH_READY) ## the same on PostgreSQL, Redis and MySQL (under 10 minutes); ENGINE=postgres: one engine
	@$(BENCH_VENV)/bin/python bench/run_servers.py $(if $(ENGINE),--engine $(ENGINE))

.PHONY: bench-counts
bench-counts: $(READY) ## function calls, memory and bytes per commit and per loaded message: exact, in a minute
	@$(PYTHON) bench/counts.py $(if $(ENGINE),--engine $(ENGINE)) $(if $(FUNCTIONS),--functions)

.PHONY: torture
torture: $(READY) ## kill, disconnect, stall, race and fuzz for MINUTES=10; FULL=1: the full volumes; ONLY=redis: one part
	@$(PYTHON) tests/torture/run.py $(if $(FULL),--full,--minutes $(MINUTES)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: fuzz
fuzz: $(READY) ## every fuzzer for MINUTES=10; TARGET=urls: one fuzzer
	@$(PYTHON) -m tests.fuzz --minutes $(MINUTES) $(if $(TARGET),--target $(TARGET))

.PHONY: dist
dist: $(READY) ## build the wheel and the sdist into dist/, and try each in an empty environment
	@$(PYTHON) tools/dist.py

.PHONY: fmt
fmt: $(READY) ## format and auto-fix
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format --quiet .

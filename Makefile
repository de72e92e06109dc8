# Everything a newcomer runs. A machine needs Python 3.11+, git and make; the rest is fetched once.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The system's own Python, never a downloaded one; the system's certificates, for networks that bring their own.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := 1
# Another environment, as `make pythons` has one for each interpreter: make check VENV=.venvs/x UV_PYTHON=/path.
VENV := .venv
export UV_PROJECT_ENVIRONMENT := $(VENV)
# A virtual environment or a PYTHONPATH the caller happens to have must not leak in.
unexport VIRTUAL_ENV
unexport PYTHONPATH

PYTHON := $(VENV)/bin/python
PYTEST := $(VENV)/bin/python -m pytest
READY := $(VENV)/.ready
# The peers bring pytest plugins of their own, so they live in an environment of their own.
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
MINUTES ?= 10
# Two test processes: what a small machine has.
WORKERS ?= 2

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY) ## make .venv from the lock file (fetches uv if it is missing)

# Once per change of the lock: every other target hangs on this stamp.
$(READY): pyproject.toml uv.lock
	@tools/uv.sh sync --frozen --quiet
	@touch $@

$(BENCH_READY): pyproject.toml uv.lock
	@UV_PROJECT_ENVIRONMENT=$(BENCH_VENV) tools/uv.sh sync --frozen --quiet --group bench
	@touch $@

.PHONY: run
run: $(READY) ## a 30-second story: an agent is killed in mid-run and resumes
	@$(PYTHON) examples/story.py

# Stages are run by tools/stages.py, which runs all of them and closes with a table.
STATIC := lint '$(VENV)/bin/ruff check --output-format concise .' \
	format '$(VENV)/bin/ruff format --check .' \
	mypy '$(VENV)/bin/mypy' \
	pyright '$(VENV)/bin/basedpyright --pythonpath $(PYTHON)' \
	surface '$(PYTHON) tools/surface.py'
PARALLEL := $(PYTEST) -n $(WORKERS) --dist worksteal
EMBEDDED := memory sqlite

.PHONY: check
check: $(READY) ## lint, types, tidy, unit and conformance on the embedded engines (under 90 s)
	@$(PYTHON) tools/stages.py $(STATIC) \
		tests '$(PARALLEL) tests/tidy tests/unit tests/conformance $(EMBEDDED:%=--perdure-provider %)'

.PHONY: test
test: $(READY) ## everything: check, all tests on five engines, the cases under python -O, then the planted bugs
	@$(PYTHON) tools/stages.py $(STATIC) \
		tests '$(PARALLEL) tests' \
		optimized '$(PYTHON) -O -m perdure.testkit.matrix $(EMBEDDED)' \
		planted '$(PYTHON) tests/planted/run.py'

.PHONY: urls
urls: $(READY) ## the tests of the URLs of every engine
	@$(PARALLEL) -m urls tests/unit tests/engines tests/cli

.PHONY: pythons
pythons: $(READY) ## check and urls on every CPython found here (PATH, pyenv, system); ENDS=1 for the oldest and newest
	@$(PYTHON) tools/pythons.py $(if $(ENDS),--ends)

.PHONY: matrix
matrix: $(READY) ## capability x engine, with the conformance cases passed in each cell
	@$(PYTHON) -m tests.support.matrix

.PHONY: bench
bench: $(BENCH_READY) ## measure against raw sqlite3, OpenAI Agents and LangGraph in one run
	@$(BENCH_VENV)/bin/python bench/run.py

.PHONY: bench-servers
bench-servers: $(BENCH_READY) ## the same on PostgreSQL, Redis and MySQL, or on ENGINE=postgres alone (under 10 minutes)
	@$(BENCH_VENV)/bin/python bench/run_servers.py $(if $(ENGINE),--engine $(ENGINE))

.PHONY: torture
torture: $(READY) ## kill, cut, stall, race and fuzz for MINUTES=10; FULL=1 for every stated volume, ONLY=redis for some of it
	@$(PYTHON) tests/torture/run.py $(if $(FULL),--full,--minutes $(MINUTES)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: fuzz
fuzz: $(READY) ## every fuzzer for MINUTES=10, or TARGET=urls alone
	@$(PYTHON) -m tests.fuzz --minutes $(MINUTES) $(if $(TARGET),--target $(TARGET))

.PHONY: fmt
fmt: $(READY) ## format, and mend what can be mended
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format --quiet .

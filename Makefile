# Everything a clone needs: Python 3.11 or newer, pip and make. `make help` lists the verbs.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	$$python -m pip --version >/dev/null 2>&1 && echo $$python && break; done)
BIN := .venv/bin
AGENT ?= examples/echo.py

# honcho counts up from PORT, and gives each process its own in the variable PORT; a SWITCHROOM_PORT
# would be the same for all, and stronger.
up: PORT := $(or $(PORT),$(SWITCHROOM_PORT),8000)
up: export SWITCHROOM_PORT :=
# honcho kills what is left 5 s after the first process has ended: all must drain in less.
up: export SWITCHROOM_REDIS_URL ?= redis://127.0.0.1:6379
up: export SWITCHROOM_AGENT ?= $(AGENT)
up: export SWITCHROOM_CARD ?= $(wildcard $(AGENT:.py=.json))
up: export SWITCHROOM_DRAIN ?= 4

# Most of what processes do is wait: two files at a time take little longer than one.
TOGETHER ?= --numprocesses=2 --dist=loadfile

.PHONY: help run up test soak check bench chaos conformance lock clean
.DEFAULT_GOAL := help

help: ## list the verbs
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 14

run: .venv/run.stamp ## start everything in one process, with the demo agent (or AGENT=…)
	@exec $(BIN)/switchroom dev $(AGENT)

up: .venv/dev.stamp ## two gateways (from PORT) and two workers from the Procfile, on a real Redis
	@PATH="$(CURDIR)/$(BIN):$$PATH" exec $(BIN)/honcho start -c gateway=2,worker=2 -p $(PORT)

test: .venv/dev.stamp .venv/sdk03.stamp ## every test that can run here; lists what it left out
	$(BIN)/pytest -q $(TOGETHER)

soak: .venv/dev.stamp .venv/sdk03.stamp ## the same tests with the long budgets
	SWITCHROOM_SOAK=1 $(BIN)/pytest -q $(TOGETHER)

check: .venv/dev.stamp ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/dev.stamp ## measure
	$(BIN)/python -m tests.bench

chaos: MINUTES ?= 3
chaos: .venv/dev.stamp ## kill, stop and cut under load for MINUTES, then check every promise
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

conformance: .venv/dev.stamp ## the A2A conformance kit at KIT=…, with the Python KIT_PYTHON=…
	@test -n "$(KIT)" || { echo "KIT names a checkout of the conformance kit." >&2; exit 1; }
	$(BIN)/python -m tests.system.conformance "$(KIT)" $(if $(KIT_PYTHON),--python "$(KIT_PYTHON)")

lock: ## pin again, for every Python and platform at once (needs uv)
	uv pip compile $(LOCK) --group build pyproject.toml -o requirements.lock
	uv pip compile $(LOCK) --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	uv pip compile $(LOCK) --group sdk03 -o requirements-sdk03.lock

# No index, no header: the locks name neither a registry nor a machine.
LOCK := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-config \
	--no-emit-index-url --no-emit-find-links --upgrade --quiet

clean: ## remove the venv and all caches
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist

# The outer pip fills the venv: ensurepip is slow, and absent where Python comes without it.
# Quiet twice: errors are shown, but not what pip thinks of the machine's own configuration.
INSTALL = $(PYTHON) -m pip --python $(BIN)/python install --quiet --quiet \
	--disable-pip-version-check

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Switchroom needs Python 3.11 or newer with pip." >&2; exit 1; }
	$(PYTHON) -m venv --without-pip .venv

.venv/run.stamp: requirements.lock pyproject.toml | $(BIN)/python
	$(INSTALL) --require-hashes -r requirements.lock
	$(INSTALL) --no-build-isolation --no-deps -e .
	@touch $@

.venv/dev.stamp: requirements-dev.lock .venv/run.stamp
	$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

# The old SDK is of the same name as the present one, so it lives in a venv of its own.
.venv/sdk03.stamp: requirements-sdk03.lock | $(BIN)/python
	$(PYTHON) -m venv --without-pip .venv/sdk03
	$(INSTALL:$(BIN)/python=.venv/sdk03/bin/python) --require-hashes -r requirements-sdk03.lock
	@touch $@

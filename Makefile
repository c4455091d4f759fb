# Horoscale. `make` alone lists what there is. Every target prepares what it needs, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-login plan sweep report summary test lint check fmt schemas lock golden clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
SWEEP ?= quickstart
SITE ?= auto
FORCE ?= 0
JOBS ?= 1
RESULTS ?= $(CURDIR)/results
DATA ?= $(CURDIR)/.data
TESTS ?= tests
# values reach the recipes as environment variables, never as shell text
export SWEEP SITE FORCE JOBS RESULTS DATA TESTS

PY := .venv/bin/python
ifeq ($(filter $(FORCE),0 1),)
$(error FORCE=$(FORCE) found, expected FORCE=1 (run finished cells anew) or FORCE=0)
endif
# the folder of the sweep's results; its name is written in the sweep's file
FOLDER = "$$($(PY) -m jobs where "$$SWEEP" --results "$$RESULTS")"

help: ## this list
	@echo "Horoscale: make TARGET [SWEEP=quickstart] [SITE=auto] [FORCE=1] [DATA=DIR] [RESULTS=DIR]"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | \
	  awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'

setup: ## prepare all that local sweeps need (TensorFlow, Horovod: some minutes, once)
	@"$(PYTHON)" containers/setup.py ranks

setup-login: ## prepare what a login node needs (no TensorFlow, no Horovod)
	@"$(PYTHON)" containers/setup.py login

plan: setup-login ## show what a sweep would do: cells, sizes, time, launch lines; runs nothing
	@$(PY) -m jobs plan "$$SWEEP" --results "$$RESULTS" --data "$$DATA" --site "$$SITE"

sweep: setup ## run the cells of SWEEP that have no good record yet, then report
	@code=0; force=; [ "$$FORCE" = 1 ] && force=--force; \
	$(PY) -m jobs sweep "$$SWEEP" --results "$$RESULTS" --data "$$DATA" --site "$$SITE" \
	  --jobs "$$JOBS" $$force || code=$$?; \
	if [ $$code -le 1 ]; then $(PY) -m analysis report --if-changed $(FOLDER) || code=$$?; fi; \
	exit $$code

report: setup-login ## build the tables, figures and the page of SWEEP from its records
	@$(PY) -m analysis report $(FOLDER)

summary: setup-login ## print the tables of SWEEP
	@$(PY) -m analysis summary $(FOLDER)

test: setup-dev ## all tests that this machine can run
	@$(PY) -m pytest $$TESTS

lint: setup-dev ## style and types; changes nothing
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

check: lint test ## lint and tests, exactly as CI does

fmt: setup-dev ## format the code and fix what the linter can fix
	@.venv/bin/ruff check --fix . ; .venv/bin/ruff format .

schemas: setup-login ## export the JSON Schemas of both contracts to docs/schema
	@$(PY) -m train.schemas docs/schema

golden: setup-dev ## rewrite the golden files of the tests (read the diff before committing)
	@UPDATE_GOLDEN=1 $(PY) -m pytest -q tests/analysis/test_write.py

lock: ## recompute the lock files from pyproject.toml
	@PYTHON="$(PYTHON)" containers/lock.sh

clean: ## remove the environment and the prepared data; results stay
	rm -rf .venv .data

.PHONY: setup-dev
setup-dev:
	@"$(PYTHON)" containers/setup.py dev

# Horoscale. `make` alone lists what there is. Every target prepares what it needs, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-login plan sweep status cancel logs preflight interconnect interconnect-baseline report summary compare image cluster \
  cluster-down test test-slow test-all invariants bench lint check fmt lock golden clean

VARIABLES := PYTHON SWEEP SITE FORCE JOBS WAIT PREFLIGHT PACK BUDGET NODES BASELINE ACCOUNT PARTITION QOS TIME LINE PHASES INTERFACE \
  RUN CELL IMAGE RESULTS DATA STORE VENV TESTS
# an empty one is not given, wherever it comes from: --data "" would be the folder of the shell
$(foreach name,$(VARIABLES),$(if $(strip $(value $(name))),,$(eval override undefine $(name))))
SWEEP ?= quickstart
SITE ?= auto
FORCE ?= 0
JOBS ?= 1
WAIT ?= 1
PREFLIGHT ?= 1
RESULTS ?= $(CURDIR)/results
DATA ?= $(CURDIR)/.data
TESTS ?= tests
# values reach the recipes as environment variables, never as shell text
export $(VARIABLES)
# GNU time reads its format from TIME
ifneq ($(findstring %,$(if $(filter environment,$(origin TIME)),$(value TIME))),)
override TIME :=
endif
# other programs have variables of these names, too: one that is used is named, once, and a make that
# calls this one passes on its own
FOREIGN := $(if $(MAKECMDGOALS),$(if $(filter 0,$(MAKELEVEL)),$(foreach name,$(VARIABLES),$(if \
  $(filter environment,$(origin $(name))),$(if $(value $(name)),$(name))))))
$(if $(FOREIGN),$(shell for name in $(FOREIGN); do \
  echo "make: $$name=$$(printenv "$$name") comes from the environment" >&2; done))

# What works before our Python can read its table (train/program/environment.py): a shell (-p) without the
# user's BASH_ENV and functions, options and CDPATH, and a Python without variables of other programs.
.SHELLFLAGS := -pc
unexport ENV CDPATH SHELLOPTS BASHOPTS GREP_OPTIONS
unexport $(filter-out PYTHON,$(filter PYTHON%,$(.VARIABLES)))
export PYTHONNOUSERSITE := 1
export PYTHONUTF8 := 1

# by the environment's own name: what runs goes on with it when .venv is switched to a new one
HERE = $$(readlink -f "$${VENV:-.venv}")/bin
PY = "$(HERE)/python"
# Python 3.11 that needs nothing set up: PYTHON=, one found, or one fetched into .venv.envs
BARE := sh containers/python.sh
$(foreach name,FORCE WAIT PREFLIGHT,$(if $(filter =0= =1=,=$($(name))=),, \
  $(error $(name)=$($(name)) found, expected $(name)=1 or $(name)=0)))
WHERE = "$$SWEEP" --results "$$RESULTS"
FROM = --data "$$DATA" $${STORE:+--store "$$STORE"} --site "$$SITE"
ASKED = $${ACCOUNT:+--account "$$ACCOUNT"} $${PARTITION:+--partition "$$PARTITION"} $${QOS:+--qos "$$QOS"} \
  $${TIME:+--time "$$TIME"}
INSIDE = $${IMAGE:+--image "$$IMAGE"}
# of earlier versions: refused, with what replaces them
GONE = $${PACK:+--pack "$$PACK"} $${BUDGET:+--budget "$$BUDGET"}
# a traceback ends with the code of a failed cell, but without the name of a folder
CRASHED = echo "[make] error: the command broke off (above) before it named its results: no report" >&2; exit 3
# the folder of the sweep's results; its name is written in the sweep's file
FOLDER = "$$($(PY) -m jobs where "$$SWEEP" --results "$$RESULTS")"
# of each sweep of SWEEP="a b"; a file's name may have blanks
FOLDERS = set -f; folders=(); if [ -e "$$SWEEP" ]; then sweeps=("$$SWEEP"); else sweeps=($$SWEEP); fi; \
  for one in "$${sweeps[@]}"; do \
    one="$$($(PY) -m jobs where "$$one" --results "$$RESULTS")" || exit; folders+=("$$one"); done

help: ## this list
	@echo "Horoscale: make TARGET [SWEEP=quickstart] [SITE=auto] [FORCE=1] [DATA=DIR] [RESULTS=DIR]"
	@echo "  places also: [STORE=DIR of prepared data] [VENV=PATH of the Python environment]"
	@echo "  on one machine also: [JOBS=cells at once] [IMAGE=cpu, gpu or a path: ranks run inside that image]"
	@echo "  on a cluster also: [WAIT=0] [PREFLIGHT=0] [NODES=N] [CELL=id]"
	@echo "  in place of the site file's: [ACCOUNT=name] [PARTITION=name] [QOS=name] [TIME=minutes or H:MM:SS of a cell]"
	@echo "  interconnect: [NODES=N or names] [PHASES=...] [INTERFACE=name] [LINE=rate] [BASELINE=file] [RUN=folder] [FORCE=1]"
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | \
	  awk -F'\t' '{printf "  %-22s %s\n", $$1, $$2}'

setup: ## prepare all that local sweeps need (TensorFlow, Horovod: some minutes, once)
	@$(BARE) containers/setup.py ranks

setup-login: ## prepare what a login node needs (no TensorFlow, no Horovod)
	@$(BARE) containers/setup.py login

plan: setup-login ## show what a sweep would do: cells, time, scripts, GPU-hours; runs nothing
	@$(PY) -m jobs plan $(WHERE) $(FROM) $(ASKED) $(INSIDE) $(GONE)

sweep: setup-login ## run the cells of SWEEP that have no good record yet, then report
	@code=0; force=; [ "$$FORCE" = 1 ] && force=--force; \
	wait=--wait; [ "$$WAIT" = 0 ] && wait=--no-wait; \
	first=--preflight; [ "$$PREFLIGHT" = 0 ] && first=--no-preflight; \
	folder="$$($(PY) -m jobs sweep $(WHERE) $(FROM) $(ASKED) $(INSIDE) $(GONE) --jobs "$$JOBS" \
	  $$wait $$first $$force --set-up)" || code=$$?; \
	if [ $$code -le 1 ] && [ -z "$$folder" ]; then $(CRASHED); fi; \
	if [ $$code -le 1 ] && [ "$$WAIT" = 1 ]; then \
	  $(PY) -m analysis report "$$folder" || code=$$?; fi; \
	exit $$code

status: setup-login ## show where every cell of SWEEP stands, on a cluster or here
	@$(PY) -m jobs status $(WHERE) --data "$$DATA"

cancel: setup-login ## end the jobs of SWEEP on a cluster; what was done stays
	@$(PY) -m jobs cancel $(WHERE) --data "$$DATA"

logs: setup-login ## show why a cell ended: CELL= its id or a part of it
	@$(PY) -m jobs logs $(WHERE) --data "$$DATA" --cell "$$CELL"

preflight: setup-login ## check on a cluster's nodes, inside the image, what SWEEP needs there
	@$(PY) -m jobs preflight $(WHERE) $(FROM) $(ASKED) $${NODES:+--nodes "$$NODES"}

interconnect: setup-login ## is the network between NODES= nodes of a cluster healthy? evidence, verdict
	@run="$$($(PY) -m jobs interconnect --site "$$SITE" --results "$$RESULTS" $(ASKED) \
	  $${NODES:+--nodes "$$NODES"} $${PHASES:+--phases "$$PHASES"} \
	  $${INTERFACE:+--interface "$$INTERFACE"})"; code=$$?; \
	if [ $$code -le 1 ] && [ -z "$$run" ]; then $(CRASHED); fi; \
	force=; [ "$$FORCE" = 1 ] && force=1; \
	if [ -n "$$run" ]; then $(PY) -m analysis interconnect "$$run" $${force:+--force} \
	  $${BASELINE:+--baseline "$$BASELINE"} $${LINE:+--line "$$LINE"} || code=$$?; fi; exit $$code

interconnect-baseline: setup-login ## keep RUN= (default: the last one) as what later runs are compared with
	@force=; [ "$$FORCE" = 1 ] && force=1; \
	run="$${RUN:-$$(ls -d "$${RESULTS/#'~/'/$$HOME/}"/interconnect/2*/ 2>/dev/null | tail -n 1)}"; \
	$(PY) -m analysis interconnect-baseline "$${run:-$$RESULTS/interconnect}" \
	  $${BASELINE:+--to "$$BASELINE"} $${force:+--force}

image: ## build the container image IMAGE=cpu or gpu (no root, no image registry)
	@$(BARE) containers/image.py "$${IMAGE:-cpu}"

cluster: ## start a real Slurm with 4 nodes on this machine (root)
	@$(BARE) containers/practice up

cluster-down: ## end it and remove its files (packages, Apptainer and the user practice stay)
	@$(BARE) containers/practice down

report: setup-login ## build the tables, figures and the page of SWEEP, one or several (SWEEP="a b"), from its records
	@$(FOLDERS); $(PY) -m analysis report "$${folders[@]}"

summary: setup-login ## print the tables of SWEEP, one or several
	@$(FOLDERS); $(PY) -m analysis summary "$${folders[@]}"

compare: setup-login ## is SWEEP slower or less accurate than in the earlier results BASELINE=folder?
	@if [ -z "$$BASELINE" ]; then echo "make compare: no BASELINE=DIR, the folder of the earlier results" >&2; exit 2; fi; \
	folder=$(FOLDER) && $(PY) -m analysis check "$$folder" --baseline "$$BASELINE"

test: setup-dev ## the tests that prove the program, within minutes; they see a bare machine and leave it as it is
	@$(PY) -m pytest -n 2 --dist loadgroup -m "not slow and not slurm" $$TESTS

# three workers: that of the practice cluster mostly waits; 5: none of $$TESTS is such a test
test-slow: setup-dev ## the other tests, as far as this machine can run them: cluster, images, README, frameworks
	@$(PY) -m pytest -n 3 --dist loadgroup --durations=40 --durations-min=1 -m "slow or slurm" $$TESTS || [ $$? = 5 ]

test-all: test test-slow ## all tests that this machine can run

invariants: setup-dev ## prove each technique: technique x invariant x observed error
	@$(PY) -m pytest -q -m invariant --whole-proof tests

bench: setup-dev ## what a step, the ghost layer, a report and the commands with 10,000 runs cost
	@$(PY) -m tests.bench $$CASES && $(PY) -m tests.bench.parts && $(PY) -m tests.bench.messages && \
	  $(PY) -m tests.bench.latency && $(PY) -m tests.bench.ghost && $(PY) -m tests.bench.records && \
	  $(PY) -m tests.bench.commands && $(PY) -m tests.bench.start

lint: setup-dev ## style and types; changes nothing
	@"$(HERE)/ruff" check . && "$(HERE)/ruff" format --check . && "$(HERE)/mypy" && \
	  "$(HERE)/mypy" --python-version 3.10 train

check: lint test ## lint and the quick tests; CI runs lint and all tests

fmt: setup-dev ## format the code and fix what the linter can fix
	@"$(HERE)/ruff" check --fix . ; "$(HERE)/ruff" format .

golden: setup-dev ## rewrite golden files and docs/schema (read the diff before committing)
	@UPDATE_GOLDEN=1 $(PY) -m pytest -q tests/analysis/page/test_write.py tests/test_schemas.py

lock: ## recompute the lock files from pyproject.toml
	@containers/locks/lock.sh

clean: ## with FORCE=1 remove Python environments that nothing uses; data, results and site files stay
	@$(BARE) containers/setup.py clean

.PHONY: setup-dev
setup-dev:
	@$(BARE) containers/setup.py dev

# Python 3.11 or newer and make are all that these targets need.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Each imports everything, for 8 s of CPU.
WORKERS ?= 2

BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed-run
STAMP := $(VENV)/.installed
RUN_LOCK := requirements/run.txt
LOCK := requirements/dev.txt
LOCK_VENV := build/lock-venv

# True only where Debian packages may be installed.
MAY_APT := command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]
APT := export DEBIAN_FRONTEND=noninteractive && apt-get update -qq && \
  apt-get install -qq -y --no-install-recommends

# Tests start hundreds of short processes: compiled modules are kept even where the environment says
# otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-slow nightly check ceiling check-model gpu docs dist lock clean debian

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

run: $(RUN_STAMP)  ## Recommend a split for a recorded server and a job, and for two others; needs no GPU
	$(BIN)/advisor recommend bert-serve-10 triad
	$(BIN)/advisor recommend bert-train vit-infer

test: $(STAMP) debian  ## Run the tests that a person waits for; ARGS go to pytest
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not gpu and not nightly and not slow" $(ARGS)

test-all: test test-slow  ## Run every test that needs no GPU

# Three workers for each of two CPUs: most of these wait for processes.
test-slow: WORKERS = 6
test-slow: $(STAMP) debian  ## Run those that take long, or start Slurm, PostgreSQL, a browser or a service
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "slow and not gpu and not nightly" $(ARGS)

nightly: $(STAMP) debian  ## Run the tests that take too long for every change
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m nightly $(ARGS)
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout 600 tests/unit $(ARGS)
	SCHEMATHESIS_EXAMPLES=50 $(BIN)/pytest -n $(WORKERS) --dist worksteal --timeout 600 \
	  tests/integration/test_api_schemathesis.py $(ARGS)

check: $(STAMP)  ## Lint, format, module names, types, import rule, words, size
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --select A005 --target-version py315 .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/contract/test_texts.py -k word
	$(BIN)/python docs/measurements/ceiling.py

ceiling: $(STAMP)  ## Lower the ceilings of the project's size to what is there
	$(BIN)/python docs/measurements/ceiling.py --lower

check-model: $(STAMP)  ## Fail where the model is worse than the evaluation that comes with it
	$(BIN)/advisor evaluate --check --out build/evaluation

gpu: $(STAMP)  ## Run the tests that need a GPU; they change none of its settings
	$(BIN)/pytest -m gpu $(ARGS)

docs: $(STAMP)  ## Make the pages a site with search and references, build/site; fails at a broken link
	$(BIN)/python docs/site/build.py

dist: $(STAMP)  ## Make the wheel and the source package, dist/; with TAG=v1.2.3 only if that is the version
	@v=$$($(BIN)/python -c 'import advisor; print(advisor.__version__)'); \
	  [ -z "$(TAG)" ] || [ "$(TAG)" = "v$$v" ] || { echo "$(TAG) is not the version, v$$v" >&2; exit 1; }
	$(BIN)/python -m build --no-isolation --outdir dist .

COMPILE := $(LOCK_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-annotate --no-header

# The versions of the large one, for some extras; hatchling makes the wheel of advisor itself.
define part_of_lock
echo hatchling | $(COMPILE) $(addprefix --extra ,$(2)) --constraint $(LOCK) --output-file $(1) pyproject.toml -
endef

lock:  ## Write the files of requirements/ anew from pyproject.toml
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/pip install --quiet uv
	echo hatchling | $(COMPILE) --upgrade \
	  --extra postgres --extra amd --extra train --extra serve --extra otel --extra client --extra slurm \
	  --extra kubernetes \
	  --group test --group docs --group check \
	  --output-file $(LOCK) pyproject.toml -
	$(call part_of_lock,$(RUN_LOCK),serve)
	$(call part_of_lock,requirements/image.txt,serve postgres)
	$(call part_of_lock,requirements/image-all.txt,serve otel postgres train kubernetes)
	rm -rf $(LOCK_VENV)

clean:  ## Remove the virtual environments and everything that was built
	rm -rf $(VENV) .venv .venv-* build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the main job needs; what tests need has it among the rest.
$(RUN_STAMP): $(RUN_LOCK) pyproject.toml | $(BIN)/python
	$(call install,$(RUN_LOCK))
	@touch $@

$(STAMP): $(LOCK) pyproject.toml | $(BIN)/python
	$(call install,$(LOCK))
	@touch $(RUN_STAMP) $@

define install
$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
endef

# Debian's python3 cannot make a venv before python3-venv is there. A venv that was made only in
# part is removed, so that the next run starts clean.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing or older than Python 3.11. Install Python 3.11 or newer," \
	    "or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(MAY_APT) && $(APT) python3-venv; } || true
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# A C compiler, the PostgreSQL server, a browser, Prometheus, and Slurm with its books. Where they may not be installed, the tests
# that need them are skipped and say so.
debian:
	@$(MAY_APT) || exit 0; \
	wanted=; \
	command -v cc >/dev/null || wanted="gcc libc6-dev"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || wanted="$$wanted postgresql"; \
	command -v chromium >/dev/null || wanted="$$wanted chromium"; \
	command -v promtool >/dev/null || wanted="$$wanted prometheus"; \
	command -v slurmctld >/dev/null || wanted="$$wanted slurm-wlm slurmdbd munge mariadb-server lua5.1"; \
	[ -z "$$wanted" ] || { $(APT) $$wanted; } || \
	  echo "could not install $$wanted; the tests that need it are skipped" >&2

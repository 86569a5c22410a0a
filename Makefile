# Every target that needs the environment builds it first: no other set-up is needed.
# Extra arguments go through ARGS, for example: make test ARGS="-k memory -x"

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(shell command -v uv 2>/dev/null)

MEMBERS := shared services/gateway services/agent-worker services/memory services/scheduler
MEMBER_FILES := $(addsuffix /pyproject.toml,$(MEMBERS))
EDITABLE := $(addprefix -e ,$(MEMBERS))

ifdef UV
CREATE_VENV := uv venv --quiet --clear --python "$(PYTHON)" $(VENV)
INSTALL := uv pip install --quiet --python $(BIN)/python
else
CREATE_VENV := "$(PYTHON)" -m venv --clear $(VENV)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# pytest leaves with 5 when it found no test. That is an error in `make test` only.
NONE_IS_FINE := || { status=$$?; test $$status -eq 5 || exit $$status; }

.DEFAULT_GOAL := help
.PHONY: help install up test test-system soak check docs bench bench-turn lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

install: $(STAMP) ## Create .venv with everything in it

# The second install needs no network: the build backend is in the lock file.
$(STAMP): requirements.lock $(MEMBER_FILES)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Posthouse needs Python 3.11 or newer, and $(PYTHON) is not. Try: make install PYTHON=python3.11" >&2; \
		exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(CREATE_VENV); }
	@echo "Installing the pinned packages into $(VENV)"
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-index --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

# `exec` hands Ctrl-C and SIGTERM to Posthouse itself, with no shell in between.
up: $(STAMP) ## Run the whole system on this machine
	@exec $(BIN)/posthouse up $(ARGS)

test: $(STAMP) ## Run the tests
	$(BIN)/pytest $(ARGS)

test-system: $(STAMP) ## Run the tests that need Debian packages
	$(BIN)/pytest -m system $(ARGS) $(NONE_IS_FINE)

soak: $(STAMP) ## Run the long tests
	$(BIN)/pytest -m soak $(ARGS) $(NONE_IS_FINE)

check: $(STAMP) ## Run lint, format, type and import checks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) ## Write docs/rpc.md from the code
	$(BIN)/python -m tests.contract.rpc_reference docs/rpc.md

bench: $(STAMP) ## Run every benchmark in tests/bench
	@set -e; for script in $(sort $(wildcard tests/bench/bench_*.py)); do \
		echo "== $$script"; $(BIN)/python -m "tests.bench.$$(basename $$script .py)" $(ARGS); done
	$(BIN)/pytest -m bench $(NONE_IS_FINE)

bench-turn: $(STAMP) ## Measure the cost of one turn
	@$(BIN)/python -m tests.bench.bench_turn $(ARGS)

# Keeps the pinned versions that still fit. To renew them all: make lock ARGS=--upgrade
lock: $(STAMP) ## Write requirements.lock anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--all-extras --group pyproject.toml:dev \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--no-emit-package posthouse $(ARGS) --output-file requirements.lock $(MEMBER_FILES)

clean: ## Remove the environment, the caches and the embedded servers' data
	rm -rf $(VENV) .posthouse .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find shared services tests -name __pycache__ -type d -prune -exec rm -rf {} +

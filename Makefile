# Every target makes what it needs: a clean clone, Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test lint format test-controlplane ci bench-engine kwok-up kwok-down kind-up clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "proreus needs Python 3.11 or newer; found: $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python cannot make a virtual environment here; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[controller,dev]'
	@touch $@

demo: $(INSTALLED) ## watch proreus schedule 1,000 pods on an embedded cluster
	$(BIN)/proreus demo

test: $(INSTALLED) ## all tests that need no cluster
	$(BIN)/pytest

lint: $(INSTALLED) ## ruff, mypy, import-linter
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED) ## let ruff mend what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

ci: lint test test-controlplane ## what CI runs

clean: ## forget the virtual environment
	rm -rf $(VENV)

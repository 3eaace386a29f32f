# make demo · make test · make lint · make bench: each sets up .venv first, if it is not there or pyproject.toml changed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test lint bench clean

demo: $(READY)
	@$(BIN)/modegraph demo

test: $(READY)
	@$(BIN)/pytest

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)
	@for script in benchmarks/*.py; do echo "$$script"; $(BIN)/python -P $$script --json || exit 1; done

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else f"Python {sys.version.split()[0]} found; modegraph needs 3.11, 3.12 or 3.13: make PYTHON=python3.11 …")'
	@echo "Setting up .venv (once, a minute or two, about 2 GB)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf .venv demo-run build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

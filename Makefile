PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COVERAGE := --cov=bregnet --cov-report=term:skip-covered

.PHONY: setup demo docs test test-all lint type figures dist-test clean

setup: $(VENV)/.with-dev

# the package with one of its extras
$(VENV)/.with-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

demo: $(VENV)/.with-cli
	$(BIN)/bregnet demo

docs: $(VENV)/.with-docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy

test: lint type
	$(BIN)/pytest -n 2 $(COVERAGE)

test-all: lint type
	$(BIN)/pytest -n 2 -m '' $(COVERAGE)

# all measurements, for hours, and the pages from them; goes on where it was; BREGNET_DATA names the folder of the sets
figures: setup $(VENV)/.with-benchmarks
	$(BIN)/python -m benchmarks.figures
	$(BIN)/python -m benchmarks.render

# wheel and sdist, and the first example of the README with the wheel, in an environment and a folder of its own
dist-test: setup
	$(BIN)/python -m tests.support.try_distribution

clean:
	rm -rf $(VENV) build dist docs/_build docs/api docs/gallery *.egg-info

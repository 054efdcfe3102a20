PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-all lint type bench paper clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/demo.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy

test: lint type
	$(BIN)/pytest -n 2

test-all: lint type
	$(BIN)/pytest -n 2 -m ''

bench: setup
	$(BIN)/python -m benchmarks.solver
	$(BIN)/python -m benchmarks.metric_learning
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.clustering
	$(BIN)/python -m benchmarks.selection
	$(BIN)/python -m benchmarks.scale

# the paper's tables, for hours; BREGNET_DATA names the folder of its sets
paper: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[benchmarks]'
	$(BIN)/python -m benchmarks.paper

clean:
	rm -rf $(VENV) build *.egg-info

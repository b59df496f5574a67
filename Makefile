# vmivae: `make help` lists the commands.
PYTHON ?= python3
VENV   := .venv
BIN    := $(CURDIR)/$(VENV)/bin
READY  := $(VENV)/.ready
# Stage commands say `python`: the environment's own comes first, also for DVC's workers.
export PATH := $(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: audit help setup compare repro test lint ui sync lock bench bench-mi clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv from requirements.lock (Python 3.11 to 3.13; PYTHON=… chooses one)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"make: {sys.executable} is Python {v.major}.{v.minor}; vmivae needs 3.11 to 3.13 (choose one: make setup PYTHON=python3.12)")'
	@echo "Installing the packages of requirements.lock into $(VENV): some minutes, and on Linux 6 GB with PyTorch's CUDA libraries"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

repro: $(READY) ## run the pipeline: data, training, information, report
	@dvc repro
	@python -m vmivae.tracking where

# One thread per process: the tests share the cores, and two networks that both want two threads wait for each other.
test: $(READY) ## run every test, JOBS=2 at a time (ARGS="-m 'not slow'" for the quick ones)
	@OMP_NUM_THREADS=1 python -m pytest --numprocesses $(or $(JOBS),2) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(READY) ## check style, format and types
	@ruff check .
	@ruff format --check .
	@mypy

ui: $(READY) ## open MLflow on 127.0.0.1 (PORT=5000)
	@python -m vmivae.tracking ui --port $(or $(PORT),5000)

compare: $(READY) ## run a grid of experiments and compare them (GRID=comparisons/mnist5k.yaml, JOBS=1)
	@python -m vmivae.comparison $(or $(GRID),comparisons/mnist5k.yaml) --jobs $(or $(JOBS),1)

sync: $(READY) ## mirror the results of the workspace and of every DVC experiment to MLflow
	@python -m vmivae.tracking sync

bench: $(READY) ## time training beside a plain loop: ten minutes (ARGS="--help")
	@PYTHONPATH=src python benchmarks/training.py $(ARGS)

bench-mi: $(READY) ## benchmark the information estimators (ARGS="'linear-*'" for some of the cases)
	@PYTHONPATH=src python benchmarks/mutual_information.py $(ARGS)

lock: $(READY) ## resolve requirements.lock anew from pyproject.toml
	@python -m pip install --quiet uv
	uv pip compile --universal --python-version 3.11 --group dev pyproject.toml -o requirements.lock --no-annotate --custom-compile-command "make lock"

audit: ## look up known vulnerabilities of the packages in requirements.lock (asks PyPI's advisory service)
	@$(PYTHON) -m venv build/audit
	@build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@build/audit/bin/pip-audit --strict --requirement requirements.lock --no-deps --disable-pip

clean: ## remove the environment and caches of tools, keep data, results and DVC's cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build src/*.egg-info
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

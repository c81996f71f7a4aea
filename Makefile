# The verbs of the project. Each one installs what it needs into $(VENV) first; the second call is quick.
# Choose an interpreter with `make test PYTHON=/usr/bin/python3.12`, another folder with `make test VENV=/tmp/venv`.

VENV ?= .venv
# Parallel test processes: one more than there are cores, for some tests wait for others; at most 4.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1); [ $$n -gt 3 ] && echo 4 || echo $$((n + 1)))

# Where python -m benchmarks.suites keeps its runs.
LOGS ?= logs/benchmark

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INPUTS := pyproject.toml constraints.txt Makefile
# The large packages that tests import: compiled once here, where each process of the tests would. Of the other
# packages, three quarters of the whole, the tests import little.
COMPILED := torch sympy scipy pandas numpy matplotlib gymnasium _pytest hypothesis optuna onnxscript
TORCH := $(shell grep '^torch==' constraints.txt)

# The default python3, or the first of 3.10 to 3.13, that runs and can make virtual environments.
FIND_PYTHON = for p in $(PYTHON) python3 python3.12 python3.11 python3.10 python3.13 python; do \
    if "$$p" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; \
    then echo "$$p"; exit 0; fi; [ -z "$(PYTHON)" ] || break; done

.PHONY: help setup demo test lint format type laws learn bench results cards gallery docs clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo     train PPO on CartPole-v1; model, learning curve and an episode under runs/demo/'
	@echo 'make test     run the test suite'
	@echo 'make setup    everything to work on the library, with pre-commit; see CONTRIBUTING.md'
	@echo 'make lint     ruff: rules and formatting         make format   let ruff rewrite the files'
	@echo 'make type     mypy                               make laws     architecture tests and figures'
	@echo 'make learn    the slow checks: every algorithm reaches its score'
	@echo 'make bench    speed beside other libraries       make docs     build the documentation into site/'
	@echo 'make results  docs/results.md from the runs of benchmarks/suites (LOGS=logs/benchmark)'
	@echo 'make cards    write what follows from the algorithms cards: tables, pages, the stub for type checkers'
	@echo 'make gallery  draw the figures of the documentation again, from benchmarks/results and from short trainings'
	@echo 'make clean    delete what these verbs made, $(VENV) included'

setup: $(VENV)/.installed-tests
	$(PIP) install --quiet pre-commit
	[ ! -e .git ] || $(BIN)/pre-commit install --hook-type pre-commit --hook-type pre-push

demo: $(VENV)/.installed-demo
	$(BIN)/python -m polyak demo --output runs/demo

# Small networks: a second thread in each test process costs more than it brings.
test learn laws: export OMP_NUM_THREADS = 1
# Bytecode is kept, whatever the environment says: many tests start programs, each of which would compile it again.
test learn laws: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

learn: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -m "learn or slow" -n $(JOBS) --dist worksteal -v --durations=0

laws: $(VENV)/.installed-tests
	$(BIN)/python -m pytest tests/laws
	$(BIN)/python -m tests.laws.gauge

lint: $(VENV)/.installed-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs examples polyak

format: $(VENV)/.installed-tests
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(VENV)/.installed-tests
	$(BIN)/mypy

bench: $(VENV)/.installed-demo
	$(BIN)/python benchmarks/bench.py

results: $(VENV)/.installed-demo
	$(BIN)/python -m benchmarks.suites --table-only --log-folder $(LOGS) --output docs/results.md

cards: $(VENV)/.installed-demo
	$(BIN)/python docs/from_cards.py
	$(BIN)/python docs/notebooks.py
	$(BIN)/python docs/from_results.py
	$(BIN)/python docs/from_agents.py
	$(BIN)/python docs/llms.py

gallery: $(VENV)/.installed-demo
	$(BIN)/python docs/gallery.py
	$(BIN)/python docs/from_agents.py --draw

docs: $(VENV)/.installed-docs
	$(BIN)/mkdocs build --strict
	$(BIN)/python docs/browser.py site || echo 'site/play plays no agents: see above'

clean:
	rm -rf $(VENV) site runs build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.venvs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@python=$$($(FIND_PYTHON)); if [ -z "$$python" ]; then \
	    echo 'make: no Python 3.10 to 3.13 with venv and ensurepip found. Install one (on Debian: python3 and' >&2; \
	    echo 'python3-venv) or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; fi; \
	echo "Making $(VENV) with $$($$python --version)"; "$$python" -m venv $(VENV)

# torch first and on its own: it is by far the largest download.
$(VENV)/.installed-torch: constraints.txt | $(BIN)/python
	$(PIP) install --quiet --no-compile -c constraints.txt $(TORCH)
	@touch $@

$(VENV)/.installed-demo: $(INPUTS) $(VENV)/.installed-torch
	$(PIP) install --quiet -c constraints.txt -e '.[extra,zoo,video]'
	@touch $@

$(VENV)/.installed-tests: $(INPUTS) $(VENV)/.installed-torch
	$(PIP) install --quiet --no-compile -c constraints.txt -e '.[tests,lint]'
	-@cd "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" && \
	    "$(abspath $(BIN))/python" -m compileall -q -q -j 0 -x '/tests?/' $(COMPILED)
	@touch $@

$(VENV)/.installed-docs: $(INPUTS) $(VENV)/.installed-torch
	$(PIP) install --quiet -c constraints.txt -e '.[docs,zoo,onnx]'
	@touch $@

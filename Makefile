# Every target makes its own virtual environment when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# pip compiles what it installs, but not what it leaves in place: where Python may not write, every start would do it.
COMPILE := $(BIN)/python -m compileall -q nni_manager trial_runner
PYTEST := $(BIN)/python -m pytest -q
# Two more than there are processors: most of the time a test waits for other processes.
WORKERS ?= $(shell expr $$(nproc) + 2)

.PHONY: demo test machines live-gpu check docs picture bench fuzz clean

# A real search on real data: sixteen trials with TPE, to the end.
demo: $(VENV)/.demo
	PATH="$(BIN):$$PATH" NNI_MANAGER_DATA="$${NNI_MANAGER_DATA:-$$HOME/nni-experiments}" \
		$(BIN)/nnictl create --config configs/digits-tpe.yml --foreground

# Everything that must hold: style, types, import contracts, tests. Most tests share the processors, as most wait for other
# processes; those that measure time run by themselves afterwards. The closing lines say the random order, and how to
# run it again. What needs root is named as skipped: see `machines`.
test: check
	sh .ci/debian-packages
	$(BIN)/python -m tests.nni3
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not alone"
	$(PYTEST) -m alone

# What mounts file systems or makes networks and containers: as root, on a machine that may be changed.
machines: $(VENV)/.dev
	sh .ci/debian-packages
	$(PYTEST) --machines -m machines

# The ledger's cases on the GPUs of this machine, and what was found there. Cards in use by others are left alone.
live-gpu: $(VENV)/.dev
	$(PYTEST) --live-gpu -m live_gpu -s tests/live_gpu

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -q -t=3.7- --no-tips --violations trial_runner

# The pages that are made from the code.
docs: $(VENV)/.dev
	$(VENV)/bin/python -m nni_manager.config.field_reference > docs/configuration.md

# README's picture, of a real search.
picture: $(VENV)/.dev
	$(BIN)/python -m tests.docs.picture docs/page.png

bench: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[gp]'
	$(COMPILE)
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(COMPILE)
	touch $@ $(VENV)/.demo

# Made-up calls of every route, good and bad, at a daemon of its own; ends by itself, in about half an hour.
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --calls $${CALLS:-10000}

clean:
	rm -rf $(VENV) .venvs

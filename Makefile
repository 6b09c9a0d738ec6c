# Every target makes its own virtual environment when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# pip compiles what it installs, but not what it leaves in place: where Python may not write, every start would do it.
COMPILE := $(BIN)/python -m compileall -q nni_manager trial_runner
PYTEST := $(BIN)/python -m pytest -q
# What a lock says, to the byte; the package itself is built with the hatchling that came with it.
INSTALL := $(BIN)/python requirements/install.py $(BIN)/python
EDITABLE := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
# Writes the locks. Where packages come from is for each machine to say, and is not written down.
UV := .venvs/uv/bin/uv
UPGRADE ?= --upgrade
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(UPGRADE)
# All that a user may install, for `lowest`.
PRODUCT := ssh kubernetes azure dlc gp programs testing
LOWEST_PYTHON ?= python3.11
# What the image has of it.
IMAGE := ssh kubernetes azure dlc gp
# What makes images, for `dist`, and what it is told besides.
ENGINE ?= docker
BUILD_FLAGS ?=
# More than there are processors: most of the time a test waits for other processes; a browser waits less.
WORKERS ?= $(shell expr $$(nproc) + 5)
THOROUGH_WORKERS ?= $(shell expr $$(nproc) + 3)
# Tests are compiled once, not by each process that runs them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test thorough machines slurm live live-gpu check style types debian chromium nni3 docs screenshot bench bench-tuners fuzz lock lowest latest dist clean

# A real search on real data: sixteen trials with TPE, to the end.
demo: $(VENV)/.demo
	PATH="$(BIN):$$PATH" NNI_MANAGER_DATA="$${NNI_MANAGER_DATA:-$$HOME/nni-experiments}" \
		$(BIN)/nnictl create --config configs/digits-tpe.yml --foreground

# Everything that must hold: style, types, import contracts, tests. Most tests share the processors, as most wait for other
# processes, and so do the types; those that measure time run by themselves afterwards. The closing lines say the random
# order, how to run it again, and what failed beside others but not alone. What needs root is named as skipped: see
# `machines`.
test:
	$(MAKE) --no-print-directory -j 2 style debian
	$(BIN)/python -m tests.gate --workers $(WORKERS) --beside "make --no-print-directory types"

# What takes longer: promises once more with large numbers or in another combination, the page in Chromium, and all that
# NNI's own programs do with this one.
thorough: $(VENV)/.dev chromium nni3
	$(BIN)/python -m tests.gate --workers $(THOROUGH_WORKERS) --thorough

# What mounts file systems or makes networks and containers: as root, on a machine that may be changed.
machines: $(VENV)/.dev debian
	$(PYTEST) --machines -m machines

# All that is tested on real Slurms, which the tests start: as root. One is of this machine's Debian packages, the other of
# another Debian suite, in a root that is made once. `machines` runs a part of it where the packages are installed.
slurm: $(VENV)/.dev
	sh .ci/debian-packages with-slurm
	-$(BIN)/python -m tests.fakes.slurm
	$(PYTEST) --machines --slurm tests/platforms/slurm tests/acceptance/test_slurm.py

# The platform contract and the digits example on a real service; nothing of them stays there. A cluster:
# make live KIND=kubeflow KUBECONFIG=~/.kube/config; any other: make live KIND=openpai LIVE_CONFIG=experiment.yml.
# All else: make live KIND=kubeflow LIVE="--help"
live: $(VENV)/.dev
	$(BIN)/python -m tests.platforms.live $(if $(KIND),--kind $(KIND)) $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG)) \
		$(if $(LIVE_CONFIG),--live-config $(LIVE_CONFIG)) $(LIVE)

# The ledger's cases on the GPUs of this machine, and what was found there. Cards in use by others are left alone.
live-gpu: $(VENV)/.dev
	$(PYTEST) --live-gpu -m live_gpu -s tests/live_gpu

check: style types

style: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# What takes a minute when nothing is cached.
types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -q -t=3.7- --no-tips --violations trial_runner

# Programs that the tests start.
debian:
	sh .ci/debian-packages

# And the browser of some.
chromium:
	sh .ci/debian-packages with-chromium

# NNI itself, which some tests run, in an environment of its own.
nni3: $(VENV)/.uv
	$(BIN)/python -m tests.nni3

# The pages that are made from the code.
docs: $(VENV)/.dev
	$(VENV)/bin/python -m nni_manager.config.field_reference > docs/configuration.md

# The screenshot in README, of a real search.
screenshot: $(VENV)/.dev chromium
	PATH="$(BIN):$$PATH" $(BIN)/python -m tests.docs.screenshot docs/page.png

# What cannot be installed here is named with the figures that are left out.
bench: $(VENV)/.dev
	-$(MAKE) --no-print-directory chromium nni3
	$(BIN)/python -m tests.benchmarks

# How well tuners search; hours with all of them: make bench-tuners TUNERS="Auto TPE" OPTIONS="--seeds 5 --group held-out"
bench-tuners: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks.tuners $(TUNERS) --processes $$(nproc) $(OPTIONS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, and $(PYTHON) is " \
		+ sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# So that what installs beside each other does not do it twice.
$(VENV)/.uv: $(VENV)/bin/python requirements/uv.txt
	$(BIN)/python requirements/install.py
	touch $@

$(VENV)/.demo: pyproject.toml requirements/demo.txt | $(VENV)/.uv
	$(INSTALL) requirements/demo.txt --compile
	$(EDITABLE)
	$(COMPILE)
	touch $@

# Of all that tests install they import a tenth, which Python compiles then; what daemons import it compiles here, and
# not in each process that the tests share.
$(VENV)/.dev: pyproject.toml requirements/dev.txt | $(VENV)/.uv
	$(INSTALL) requirements/dev.txt
	$(EDITABLE)
	$(COMPILE)
	$(BIN)/python -c "from tests.fork_server import server; server.import_all()"
	touch $@ $(VENV)/.demo

# Updates the locks: the newest releases that pyproject.toml allows, for every Python and platform, with the hashes of all
# their files. What is locked already stays: make lock UPGRADE=
lock: $(UV)
	$(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	echo hatchling | $(LOCK) --extra gp --constraints requirements/dev.txt pyproject.toml - -o requirements/demo.txt
	echo hatchling | $(LOCK) $(IMAGE:%=--extra %) --constraints requirements/dev.txt pyproject.toml - -o requirements/image.txt
	$(LOCK) requirements/nni3.in -o requirements/nni3.txt
	echo uv | $(LOCK) - -o requirements/uv.txt

# Unit and contract tests of `test` on the oldest releases that pyproject.toml allows, with the oldest Python. Tools are the
# newest.
lowest: $(UV)
	$(UV) venv --quiet --clear --python $(LOWEST_PYTHON) .venvs/lowest
	$(UV) pip compile --quiet --no-header --no-annotate --resolution lowest-direct --python .venvs/lowest/bin/python \
		$(PRODUCT:%=--extra %) pyproject.toml -o .venvs/lowest/direct.txt
	$(UV) pip install --quiet --python .venvs/lowest/bin/python -c .venvs/lowest/direct.txt -e '.[dev]' pip
	.venvs/lowest/bin/python -m pytest -q --workers $(WORKERS) -m "(unit or contract) and not (alone or thorough)"

# All of `test` and `thorough` on the newest releases that pyproject.toml allows.
latest:
	$(PYTHON) -m venv --clear .venvs/latest
	.venvs/latest/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch .venvs/latest/.demo .venvs/latest/.dev
	$(MAKE) test VENV=.venvs/latest
	$(MAKE) thorough VENV=.venvs/latest

$(UV):
	$(PYTHON) -m venv .venvs/uv
	.venvs/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

# What a release is: an sdist, the wheel that comes of it, and the image. The wheel runs the demo, in an environment of its
# own. Docker or Podman makes the image; without one of them it is named as left out.
dist: $(VENV)/.dev
	rm -rf dist .venvs/dist
	$(BIN)/hatchling build -t sdist -d dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist dist/*.tar.gz
	$(BIN)/python -m venv .venvs/dist
	.venvs/dist/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/demo.txt
	.venvs/dist/bin/python -m pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	cd .venvs/dist && PATH="$$PWD/bin:$$PATH" NNI_MANAGER_DATA="$$PWD/data" sh -ec \
		'nnictl create --config "$(CURDIR)/configs/digits-tpe.yml" --foreground; nni-manager stop'
	@if $(ENGINE) info >/dev/null 2>&1; then $(ENGINE) build $(BUILD_FLAGS) -t nni-manager .; \
		else echo "left out: the image, as $(ENGINE) does not answer (ENGINE=podman?)"; fi
	ls -l dist

# Made-up calls of every route, good and bad, at a daemon of its own; ends by itself, in about half an hour.
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --calls $${CALLS:-10000}

clean:
	rm -rf $(VENV) .venvs dist

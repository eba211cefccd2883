# make demo       a real engine leaking, then the same engine with the overlay
# make test       what CI runs: about half an hour on two cores
# make test-fast  what needs no engine: a minute
# make test-all   every release and all examples: for a release of the project, and each night
#
# Needs Python 3.11 and the package registries; everything else comes into .venv and into $OVERLAY_CACHE
# (default: ~/.cache/engine-overlay), where the engines' sources and their environment are kept between runs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
# The parts of a run; tests/lanes.py says what is in each, CONTRIBUTING.md what each shows and costs.
PARTS := fast matrix serving patches rl doctor other-tools properties budget suite packaging proxy canary live live-rl

.PHONY: test test-all $(addprefix test-,$(PARTS)) demo bench lint clean

# What costs little first, then the others on both cores.
test: lint test-fast
	$(PY) -m tests.lanes

test-all: lint
	$(PY) -m tests.lanes --all fast
	$(PY) -m tests.lanes --all

$(addprefix test-,$(PARTS)): test-%: $(VENV)/.ready
	$(PY) -m tests.lanes $*

# Tools and the overlay itself, editable. uv is taken from here; none has to be on the machine.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	touch $@

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .

# The first run fetches about 2 GB and takes some five minutes; later ones take one or two.
demo: $(VENV)/.ready
	$(PY) -m demo

# Start of an interpreter, import of an engine, streamed tokens: each as a ratio to stock in the same run.
bench: $(VENV)/.ready
	$(PY) -m bench.startup
	$(PY) -m bench.engine_import
	$(PY) -m bench.stream
	$(PY) -m bench.proxy

clean:
	rm -rf build dist sitecustomize_hooks/*.egg-info $(VENV) .pytest_cache .ruff_cache .hypothesis
	find overlay patches sitecustomize_hooks tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

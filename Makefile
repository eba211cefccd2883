# make demo   a real engine leaking, then the same engine with the overlay
# make test   everything that CI runs; make test-fast is the part that takes seconds
#
# Needs Python 3.11 and the package registries; everything else comes into .venv and into $OVERLAY_CACHE
# (default: ~/.cache/engine-overlay), where the engines' sources and their environment are kept between runs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
# What of tests/canary needs a server.
ASKED := $(addprefix tests/canary/test_,broken.py command.py report.py)

.PHONY: test lane-processes lane-releases test-fast test-proxy test-packaging test-matrix test-patches test-rl \
	test-doctor test-other-tools test-properties test-canary test-live test-live-rl test-budget test-suite demo bench lint clean

# What costs little first, then two lanes side by side: most of it waits for one process on one core.
test: lint test-fast
	$(MAKE) --jobs=2 --output-sync=line lane-processes lane-releases

lane-processes:
	$(MAKE) --jobs=1 test-packaging test-doctor test-other-tools test-proxy test-canary test-live test-live-rl test-budget test-suite

lane-releases:
	$(MAKE) --jobs=1 test-matrix test-patches test-rl test-properties

# Tools and the overlay itself, editable. uv is taken from here; none has to be on the machine.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	touch $@

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .

# What needs no engine, on two cores: under a minute.
test-fast: $(VENV)/.ready
	$(PY) -m pytest -q --numprocesses=2 -m "not engine" tests/warm tests/core tests/text tests/patches tests/rl tests/canary \
		tests/doctor/test_files.py tests/doctor/test_launch.py $(addprefix --ignore=,$(ASKED))

# The stray-tag filter: any chunking of streams, the proxy as a process, and two releases' own servers: 2 minutes.
test-proxy: $(VENV)/.ready
	$(PY) -m pytest -q tests/proxy

# The canary as a process, against a server that breaks its answers in every way: a minute. Its detectors are in
# test-fast; the live server is asked by test-live.
test-canary: $(VENV)/.ready
	$(PY) -m pytest -q $(ASKED)

# Every way to install it, in fresh environments of every Python from 3.10 to 3.13 that is on this machine.
test-packaging: $(VENV)/.ready
	$(PY) -m pytest -q tests/packaging

# Every release of the engines, parsers and HTTP, overlay off and on: about 12 minutes on two cores; results of an
# unchanged tree are kept in the cache. The first run also fetches the releases and makes their environment.
test-matrix: $(VENV)/.ready
	$(PY) -m pytest -q tests/matrix tests/serving tests/verify

# Each patch on the releases where what it touches changed: more streams than the public cases have.
test-patches: $(VENV)/.ready
	$(PY) -m pytest -q -m engine tests/patches/parsing tests/patches/reasoning tests/patches/tools tests/patches/unified
	$(PY) -m pytest -q tests/patches/test_changed_bodies.py tests/patches/test_more_cases.py \
		tests/patches/test_legacy_parsers.py

# The rl profile on every release: each way to start an engine, with and without values of the user; logits with a
# float32 head; processed log-probabilities. About 5 minutes on two cores; results of an unchanged tree are kept.
test-rl: $(VENV)/.ready
	$(PY) -m pytest -q -m engine tests/patches/runtime tests/patches/weights tests/patches/logprobs

# Thinking budgets and structured output: the engines' own core over HTTP, and made-up answers through every keeper of
# budgets that the releases have. About four minutes; the answers over HTTP of an unchanged tree are kept.
test-budget: $(VENV)/.ready
	$(PY) -m pytest -q tests/budget

# What the doctor finds: in small engines that are broken on purpose, and in releases with models and flags that do
# not fit. About four minutes.
test-doctor: $(VENV)/.ready
	$(PY) -m pytest -q tests/doctor/test_installation.py tests/doctor/test_on_engines.py

# Beside ddtrace, OpenTelemetry, wrapt, coverage, beartype, line_profiler and reloads, in each order of installation:
# the same answers as without them, and stock after undo. About two minutes of CPU time.
test-other-tools: $(VENV)/.ready
	$(PY) -m pytest -q tests/other_tools

# 20,000 made-up answers, right in every part, streaming and full alike; a longer search by hand:
# python -m tests.properties.search (in a process of a release).
test-properties: $(VENV)/.ready
	$(PY) -m pytest -q tests/properties

# The engines' own tests with the overlay off and on: about 6 minutes of CPU time, half of it kept for the next run.
test-suite: $(VENV)/.ready
	$(PY) -m pytest -q tests/engine_suite

# One real server a run on this CPU, asked by the openai client. The first run fetches the released engine.
test-live: $(VENV)/.ready
	$(PY) -m tests.live.environment
	$$($(PY) -m tests.matrix.environment) -m pytest -q tests/live

# Rollouts of the released engine against a transformers trainer: parity, and weights changed under running requests.
test-live-rl: $(VENV)/.ready
	$$($(PY) -m tests.live_rl.environment) -m pytest -q tests/live_rl

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

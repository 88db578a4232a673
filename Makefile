# Everything a person does here, one line each. Only make and Python 3.11 or later are assumed.
#
#   make demo      from a fresh clone to a served model
#   make help      the list

SHELL := /bin/sh
.DEFAULT_GOAL := help

PY := .venv/bin/python
SOURCES := $(wildcard proto/pyproject.toml server/pyproject.toml client/pyproject.toml)
MODELS ?= deploy/models
SECONDS ?= 600
IMAGE ?= headrace
ENGINE ?= cpu

export PYTHONASYNCIODEBUG ?= 1
# A server starts in half the time when what it imports has been compiled before.
unexport PYTHONDONTWRITEBYTECODE
# Tests use ONNX Runtime directly too; its wheels report usage unless told not to.
export ORT_DISABLE_TELEMETRY ?= 1

.PHONY: help setup demo serve test test-peers test-gpu test-tensorrt trt-matrix bench simulate compare cover fuzz proto proto-check fmt lint types lock image clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.stamp  ## .venv with headrace, its client and every tool; nothing to do when up to date

.venv/.stamp: pyproject.toml constraints.txt tools/setup.sh $(SOURCES)
	@sh tools/setup.sh

.venv-proto/.stamp: pyproject.toml tools/setup-proto.sh | .venv/.stamp
	@sh tools/setup-proto.sh

.venv-fuzz/.stamp: pyproject.toml tools/setup-fuzz.sh | .venv/.stamp
	@sh tools/setup-fuzz.sh

demo: setup  ## start a server on the demo models, send real inputs, print the answers, stop it
	PYTHONASYNCIODEBUG= $(PY) deploy/demo/run.py

serve: setup  ## serve MODELS (deploy/models) in the foreground until Ctrl-C
	PYTHONASYNCIODEBUG= .venv/bin/headrace serve --model-repository $(MODELS)

test: lint types proto-check demo  ## format, lint, types, generated code, the demo, and every test but the GPU's
	$(PY) -m pytest --numprocesses=auto tests/unit
	$(PY) -m pytest --numprocesses=auto --dist=loadfile tests/contract tests/service tests/load tests/peers tests/packaging

test-peers: setup  ## unmodified clients of others, each in an environment of its own
	$(PY) -m pytest tests/peers

test-gpu:  ## tests/gpu with the python3 at hand (no .venv); fails when no test ran
	PYTHONPATH=proto:server:client:tests$${PYTHONPATH:+:$$PYTHONPATH} python3 -m pytest -c tests/gpu/pytest.ini -p helpers.must_run tests/gpu

test-tensorrt:  ## proves, with TensorRT and a GPU, what is only compared here; python3 at hand; fails without
	PYTHONPATH=proto:server:client:tests$${PYTHONPATH:+:$$PYTHONPATH} python3 -m pytest -c tests/gpu/pytest.ini -p helpers.must_run tests/full_tensorrt

trt-matrix: setup  ## docs/tensorrt-versions.md: which release of TensorRT has what
	PYTHONPATH=tests $(PY) -m helpers.trt_matrix docs/tensorrt-versions.md && cat docs/tensorrt-versions.md

bench: setup  ## throughput, latency and CPU of each transport and model, beside bare echoes
	PYTHONASYNCIODEBUG= PYTHONPATH=tests $(PY) -m load.bench

simulate: setup  ## queue policies against each other in virtual time; writes docs/scheduling-simulation.md
	PYTHONPATH=tests $(PY) -m load.simulate.docs

cover: setup  ## branch coverage of unit, contract and service tests; fails below the floor
	$(PY) -m coverage run -m pytest -p no:cov --timeout=120 tests/unit tests/contract tests/service && $(PY) -m coverage combine --quiet && $(PY) -m coverage report

compare: setup  ## every case asked of the real tritonserver and of headrace; writes docs/compatibility.md
	PYTHONASYNCIODEBUG= PYTHONPATH=tests $(PY) -m helpers.comparison

fuzz: .venv-fuzz/.stamp  ## SECONDS (600) of searching for bytes that break each reader; BODIES="wire plan" for some
	PYTHONPATH=tests nice -n 19 .venv-fuzz/bin/python -m fuzz.run --seconds $(SECONDS) $(BODIES)

proto: .venv-proto/.stamp  ## generate the code beside the .proto files
	.venv-proto/bin/python proto/generate.py

proto-check: .venv-proto/.stamp  ## fail when the committed generated code is not what `make proto` makes
	.venv-proto/bin/python proto/generate.py --check

fmt: setup  ## format, and mend what ruff can mend
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

lint: setup  ## formatting, ruff, spelling, the Dockerfile
	.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/codespell && .venv/bin/hadolint Dockerfile

types: setup  ## mypy --strict
	.venv/bin/mypy

lock: setup  ## pin every dependency anew (constraints.txt)
	sh tools/lock.sh --upgrade

image: setup  ## build the container image (ENGINE=cpu or tensorrt)
	sh deploy/image.sh $(IMAGE) $(ENGINE)

clean:  ## remove what was made here: environments, caches, builds
	rm -rf .venv .venv-* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov; find . -name __pycache__ -type d -prune -exec rm -rf {} +

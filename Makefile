# Everything here works on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup run test frameworks faults clients prometheus kubelet fidelity laws conformance volcano-e2e differential crash lint types sbom audit attack bench bench-cluster bench-scale changelog clean lock

setup: $(STAMP)

$(STAMP): pyproject.toml requirements/dev.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hekla needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

run: setup
	$(BIN)/hekla run examples/hello-gang.yaml

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n auto

# Ray, Dask, Spark and PyTorch as real processes; installs them first (about 1.5 GB).
frameworks: setup
	$(BIN)/python -m pytest -n 0 -m frameworks tests/frameworks

# Everything that goes wrong on purpose: dead, frozen and cut-off leaders, failing servers, storms.
faults: setup
	$(BIN)/python -m pytest -n 0 -m "" tests/faults

# Real clients against both servers; installs them first (about 400 MB).
clients: setup
	$(BIN)/python -m pytest -n 0 -m clients tests/clients

# What is asked of Prometheus, asked of a real one; builds it first (some 10 minutes).
prometheus: setup
	$(BIN)/python -m pytest -n 0 -m prometheus tests/scheduler

# Two real kubelets with real containers on this machine; needs root, builds them first (10 minutes).
kubelet: setup
	$(BIN)/python -m pytest -n 0 -m kubelet tests/realkube/kubelet

# Decisions on generated clusters compared with the real Volcano's; builds it first (10 minutes).
WORLDS ?= 2000
SEED ?= 1
fidelity: setup
	$(BIN)/python -m pytest -n 0 -q -m oracle tests/fidelity
	$(BIN)/python -m tests.fidelity.generated --worlds $(WORLDS) --seed $(SEED) $(if $(WORKERS),--workers $(WORKERS))

# What hekla owes generated clusters whatever Volcano does, over twenty cycles; needs no Go.
laws: setup
	$(BIN)/python -m tests.fidelity.generated --laws --worlds $(WORLDS) --seed $(SEED) $(if $(WORKERS),--workers $(WORKERS))

# Nonsense at the parsers, the API and the socket (about 10 minutes).
fuzz: setup $(VENV)/fuzz/.done
	$(BIN)/python -m tools.fuzz
	$(BIN)/python -m tools.fuzz.slow
	$(VENV)/fuzz/bin/python -m tools.fuzz.guided
	$(VENV)/fuzz/bin/python -m tools.fuzz.schema

# Fuzzers bring much that nothing else needs: they have an environment of their own.
$(VENV)/fuzz/.done: requirements/fuzz.txt
	$(PYTHON) -m venv $(VENV)/fuzz
	$(VENV)/fuzz/bin/pip install --quiet --require-hashes --no-deps -r requirements/fuzz.txt
	$(VENV)/fuzz/bin/pip install --quiet --no-deps --editable .
	touch $@

# What hekla installs, as a CycloneDX list: build/hekla.cdx.json.
sbom: setup
	$(PYTHON) -m venv --clear $(VENV)/supply && $(PYTHON) -m venv --clear --without-pip $(VENV)/installed
	$(VENV)/supply/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/supply.txt
	$(BIN)/python -m pip --python $(VENV)/installed/bin/python install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/run.txt
	mkdir -p build
	$(VENV)/supply/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o build/hekla.cdx.json $(VENV)/installed/bin/python
	$(BIN)/python -m tools.audit --sbom build/hekla.cdx.json

# Known vulnerabilities of the pinned versions, from a file of advisories in the OSV format.
audit: setup
	$(BIN)/python -m tools.audit --advisories $(ADVISORIES)

# A hostile tenant against a cluster with two users (about 11 minutes).
attack: setup
	$(BIN)/python -m tools.attack

# Power cuts at the store and kill -9 at the server, thousands and hundreds of times (about 10 minutes).
crash: setup
	$(BIN)/python -m tools.crash

# Kubernetes' own conformance cases against `hekla up`; builds the suite first (about 7 minutes).
conformance: setup
	$(BIN)/python -m tools.conformance

# Volcano's own end-to-end suites against hekla; builds them first (some minutes), runs about an hour.
volcano-e2e: setup
	$(BIN)/python -m tools.volcano_e2e

# The same generated requests to hekla's server and to kube-apiserver, answers compared.
differential: setup
	$(BIN)/python -m tools.differential --requests 10000

bench: setup
	$(BIN)/python -m bench.apiserver
	$(BIN)/python -m bench.core
	$(BIN)/python -m bench.controllers
	$(BIN)/python -m bench.service
	$(BIN)/python -m bench.local
	[ $$(id -u) -ne 0 ] || $(BIN)/python -m bench.containers
	$(BIN)/python -m bench.cli
	$(BIN)/python -m bench.quality

# Hours: every case side by side on a real Kubernetes, and the single-machine cluster at scale.
bench-cluster: setup
	$(BIN)/python -m bench.cluster --case all --out docs/images

bench-scale: setup
	$(BIN)/python -m bench.scale --out docs/images
	$(BIN)/python -m bench.scale --soak 40 --out docs/images

# Release notes: collects the fragments of changelog.d into CHANGELOG.md and deletes them.
changelog: setup
	$(BIN)/towncrier build --yes --version $(VERSION) --date $(shell date -u +%F)

lock:
	$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install --quiet uv
	$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -o requirements/dev.txt requirements/dev.in pyproject.toml
	$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -c requirements/dev.txt -o requirements/run.txt pyproject.toml
	$(VENV)/lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -o requirements/frameworks.txt requirements/frameworks.in
	$(VENV)/lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -o requirements/clients.txt requirements/clients.in
	$(VENV)/lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -o requirements/fuzz.txt requirements/fuzz.in pyproject.toml
	$(VENV)/lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" -o requirements/supply.txt requirements/supply.in

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target does its own set-up, once: a virtual environment with the package, and with its tools for all but `run`.
# Needs make, a Python of at least 3.11 and a package index.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Tests start many processes, and each would compile our code again: a tenth of the processor time of `make test`.
unexport PYTHONDONTWRITEBYTECODE
READY := $(VENV)/ready
# What running needs; a virtual environment with the tools as well will do.
RUN_READY := $(if $(wildcard $(READY)),$(READY),$(VENV)/run-ready)

# helm and kubectl, for tests and releases. Programs of the machine come first.
PROGRAMS := $(VENV)/programs
export PATH := $(PATH):$(abspath $(PROGRAMS))

.PHONY: run test check laws attack costs mutants scenarios bench soak docs e2e e2e-versions e2e-table e2e-preemption lock image deploy deploy-cert-manager undeploy release sign clean

run: $(RUN_READY) ## the extender at work on an embedded cluster, until Ctrl-C
	$(BIN)/extender demo

# Collected once before: six workers that begin without byte code would each compile the tests, for 16 s on two cores.
test: check $(PROGRAMS)/ready ## everything but what needs real binaries, thousands of nodes or much time; six tests at a time, as half of them wait, or JOBS=1
	$(BIN)/pytest --collect-only --quiet >/dev/null || true  # what is wrong is told below
	$(BIN)/pytest -m alone
	$(BIN)/pytest -n $(or $(JOBS),6) --dist worksteal -m "not e2e and not scale and not bench and not alone"

check: $(READY) ## what can be said without running the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	if git rev-parse --git-dir >/dev/null 2>&1; then $(BIN)/reuse lint --lines; else echo "no checkout: no reuse lint"; fi

laws: $(READY) ## 2,000 examples of each law, fresh ones each time; repeat a failure by the blob that it prints
	$(BIN)/pytest tests/laws --hypothesis-profile=thorough --timeout=0

mutants: $(READY) ## 100 small changes of the pure floors, and which of them no test noticed; make mutants COUNT=300 SEED=7
	$(BIN)/python -m tests.mutants --count "$(or $(COUNT),100)" --seed "$(or $(SEED),1)"

attack: $(READY) ## hostile requests, bodies, connections, streams and tenants against a service of its own; or make attack ONLY="gzip"
	$(BIN)/python -m tests.attack $(ONLY)

costs: $(READY) ## what each input costs at its limit, in twenty minutes, and one table; or make costs ONLY="policies gang"
	$(BIN)/python -m tests.costs $(ONLY)

scenarios: $(READY) ## every scenario with five seeds, in half an hour, and one table; or SEEDS=2 SEED=90210 ONLY="quota gangs"
	$(BIN)/python -m tests.scenarios --seeds "$(or $(SEEDS),5)" --first "$(or $(SEED),1)" $(if $(ONLY),--only $(ONLY))

bench: $(READY) ## how long decisions take, and what has become slower since main, or FROM=COMMIT; everything, in most of an hour: python -m tests.tools.bench --label nightly --check
	$(BIN)/python -m tests.tools.bench --label short
	$(BIN)/python -m tests.tools.bench.turns $(if $(FROM),--from "$(FROM)")

soak: $(READY) ## a million decisions under faults, in virtual time on two cores; make soak DECISIONS=1000000 SEED=7
	$(BIN)/python -m tests.soak --decisions "$(or $(DECISIONS),1000000)" --seed "$(or $(SEED),1)"

docs: $(VENV)/docs-ready ## one searchable site of all Markdown files in site/, which needs no other host; a link that leads nowhere is an error
	rm -rf site
	$(BIN)/python -m deploy.site site

e2e: $(READY) $(PROGRAMS)/ready ## against a real control plane: make e2e KUBE_ASSETS_DIR=/dir/with/etcd,kube-apiserver,kube-scheduler
	KUBE_ASSETS_DIR="$(KUBE_ASSETS_DIR)" $(BIN)/pytest -m e2e -rs tests/e2e

e2e-versions: $(READY) $(PROGRAMS)/ready ## the core of e2e with each version of Kubernetes, and one table: KUBE_ASSETS_DIR=/dir/with/1.29,1.30,...; or ONLY="1.33 1.33+1.32"
	$(BIN)/python -m tests.e2e.version_matrix "$(KUBE_ASSETS_DIR)" $(if $(ONLY),--only $(ONLY))

e2e-table: $(READY) ## one table of speed, row by row; goes on where it was cut, FRESH=1 begins again; or WORKLOADS="W1 W7" EXISTING=5000
	KUBE_ASSETS_DIR="$(KUBE_ASSETS_DIR)" TABLE_WORKLOADS="$(WORKLOADS)" TABLE_EXISTING="$(EXISTING)" \
		TABLE_NODES="$(NODES)" TABLE_PERCENTAGE="$(PERCENTAGE)" TABLE_FRESH="$(FRESH)" \
		$(BIN)/pytest -m scale -rs tests/e2e/test_table.py

e2e-preemption: $(READY) ## as e2e, preemption of ours and of the scheduler; or make e2e-preemption NODES="100 300" ROUNDS=3 OTHERS=0
	KUBE_ASSETS_DIR="$(KUBE_ASSETS_DIR)" PREEMPTION_NODES="$(NODES)" PREEMPTION_ROUNDS="$(ROUNDS)" PREEMPTION_OTHERS="$(OTHERS)" \
		$(BIN)/pytest -m scale -rs tests/e2e/test_preemption_speed.py

# For every platform and Python from 3.11 on (--universal): one file for all images. uv stays out of the tools' environment.
lock: COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/lock/bin/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url $(if $(UPGRADE),--upgrade)
lock: ## what the image installs, with hashes, in deploy/requirements; to the newest in range: make lock UPGRADE=1
	@test -n "$(PYTHON)" || { echo "make: no Python of at least 3.11 found; set PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	mkdir -p deploy/requirements
	$(COMPILE) --extra uvloop --output-file deploy/requirements/run.txt pyproject.toml
	sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(COMPILE) --output-file deploy/requirements/build.txt -

image: ## the image, by buildah or podman; or make image BASE=docker.io/library/python@sha256:... IMAGE=REGISTRY/placement-extender PLATFORMS=linux/amd64,linux/arm64
	@test -n "$(PYTHON)" || { echo "make: no Python of at least 3.11 found; set PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m deploy.release.image $(if $(BASE),--base "$(BASE)") $(if $(IMAGE),--name "$(IMAGE)") $(if $(PLATFORMS),--platforms "$(PLATFORMS)")

INSTALL = @test -n "$(PYTHON)" || { echo "make: no Python of at least 3.11 found; set PYTHON=..." >&2; exit 1; }; "$(PYTHON)" -m deploy.install

deploy: ## into the cluster of kubectl's context: make deploy IMAGE=REGISTRY/placement-extender@sha256:...; LAYOUT=second-scheduler (default), service or schedulers; POLICIES=1
	$(INSTALL) deploy --image "$(IMAGE)" --layout "$(or $(LAYOUT),second-scheduler)" $(if $(POLICIES),--policies) $(if $(TIMEOUT),--timeout "$(TIMEOUT)")

deploy-cert-manager: ## as deploy, LAYOUT=service, with certificates by cert-manager
	$(INSTALL) deploy --image "$(IMAGE)" --layout "$(or $(LAYOUT),service)-cert-manager" $(if $(POLICIES),--policies) $(if $(TIMEOUT),--timeout "$(TIMEOUT)")

undeploy: ## out of the cluster of kubectl's context, with what its replicas have made; LAYOUT as for deploy, or service-cert-manager
	$(INSTALL) undeploy --layout "$(or $(LAYOUT),second-scheduler)" $(if $(TIMEOUT),--timeout "$(TIMEOUT)")

release: $(READY) $(PROGRAMS)/ready ## a release in dist/: wheel, sdist, image, manifests, bills of materials, checksums; BASE, IMAGE and PLATFORMS (both by default) as for image
	rm -rf dist
	$(BIN)/python -m deploy.release --out dist $(if $(BASE),--base "$(BASE)") $(if $(IMAGE),--name "$(IMAGE)") $(if $(PLATFORMS),--platforms "$(PLATFORMS)")

sign: ## signs dist/SHA256SUMS with cosign: with KEY=cosign.key, or keyless; prints the command that signs the pushed image
	@test -n "$(PYTHON)" || { echo "make: no Python of at least 3.11 found; set PYTHON=..." >&2; exit 1; }
	"$(PYTHON)" -m deploy.release.sign --out dist $(if $(IMAGE),--name "$(IMAGE)") $(if $(KEY),--key "$(KEY)")

$(READY): EXTRA := dev
$(VENV)/run-ready: EXTRA := uvloop
$(VENV)/docs-ready: EXTRA := docs
$(READY) $(VENV)/run-ready $(VENV)/docs-ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python of at least 3.11 found; set PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRA)]'
	$(if $(filter docs,$(EXTRA)),$(BIN)/python -m deploy.site --fetch || echo "make: no mermaid: diagrams stay text" >&2)
	touch $@

$(PROGRAMS)/ready: deploy/requirements/programs.txt | $(READY)
	mkdir -p $(PROGRAMS)
	$(BIN)/python -m deploy.programs $(PROGRAMS) && touch $@ || echo "make: no helm: tests that need it are skipped" >&2

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site

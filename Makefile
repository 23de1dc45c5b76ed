# Every target builds what it needs: a clean clone, Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests start proreus hundreds of times. Without its bytecode each start compiles for half a second.
unexport PYTHONDONTWRITEBYTECODE

# What is installed is what the lock says, by content; nothing is built from source.
LOCKED := --quiet --disable-pip-version-check --require-hashes --only-binary :all:

.PHONY: build-ahead help venv demo test test-core test-addon-pairs lint format api-page metrics-page test-controlplane test-other-controlplanes test-operators test-clients chaos ci bench bench-engine bench-own-plugin bench-families bench-gangs bench-startup soak oracle oracle-fuzz oracle-changes oracle-cases wakeups hostile hostile-real kwok-up kwok-down kind-up image push lock site vendored sbom wheel release image-check readme clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

$(INSTALLED): pyproject.toml requirements/development.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "proreus needs Python 3.11 or newer; found: $$($(PYTHON) --version)"; exit 1; }
	@echo "installing proreus and the tools of its tests into $(VENV), once: a minute or two"
	@$(PYTHON) -m venv $(VENV) || { echo "Python cannot make a virtual environment here; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/pip install $(LOCKED) --requirement requirements/development.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

venv: $(INSTALLED) ## the virtual environment, with proreus in it

# The dashboard stays until Ctrl-C: not where nobody watches, such as in a pipeline. Ctrl-C is
# no error: without a trap the shell would die of it.
demo: $(INSTALLED) ## watch proreus schedule 1,000 pods on an embedded cluster, in the browser too
	@trap : INT; if [ -t 1 ]; then $(BIN)/proreus demo --serve; else $(BIN)/proreus demo; fi || [ $$? -eq 130 ]

# Tests of the first part share nothing; those of the second share what a module starts. A failure of
# one part does not hide the other.
test: $(INSTALLED) ## all tests that need no cluster
	@failed=; \
	$(BIN)/pytest --numprocesses 2 --dist worksteal tests/unit tests/conformance || failed="tests/unit tests/conformance"; \
	$(BIN)/pytest --numprocesses 2 --dist loadfile tests/integration tests/browser examples || failed="$$failed tests/integration tests/browser examples"; \
	if [ -n "$$failed" ]; then echo "FAILED, see above: $$failed"; exit 1; fi

test-core: $(INSTALLED) ## the core's tests, in a copy without add-ons, controller, workbench and dashboard
	$(BIN)/python tests/core_alone.py --numprocesses 2 --dist worksteal tests/unit tests/conformance

PAIR_SCRIPTS ?= 2000

test-addon-pairs: $(INSTALLED) ## add-ons do together what each does alone, in 2,000 random scripts
	PROREUS_PAIR_SCRIPTS=$(PAIR_SCRIPTS) $(BIN)/pytest --numprocesses 2 tests/unit/addons/test_pairs.py

lint: $(INSTALLED) ## ruff, mypy, import-linter, names of classes, licences
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy docs/api_page.py docs/metrics_page.py docs/site_hooks.py release.py
	$(BIN)/mypy examples/*/plugins/*.py examples/reserve-and-notify/licence_server.py deploy/plugins-from-configmap/*.py
	$(BIN)/lint-imports
	$(BIN)/python tests/lint/class_names.py
	$(BIN)/python tests/lint/licences.py
	$(BIN)/python tests/lint/vendored.py

format: $(INSTALLED) ## let ruff format and fix what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

api-page: $(INSTALLED) ## write docs/api.md, the page of the public API, from docstrings
	$(BIN)/python docs/api_page.py > docs/api.md.new
	mv docs/api.md.new docs/api.md

metrics-page: $(INSTALLED) ## write docs/metrics.md, the page of all metrics, from their declarations
	$(BIN)/python docs/metrics_page.py > docs/metrics.md.new
	mv docs/metrics.md.new docs/metrics.md

# The version of the control plane in tests and benchmarks, and of the oracle: 1.36, 1.37, or 1.38, of
# which there is only kube-scheduler yet.
KUBERNETES ?= 1.37
export KUBERNETES

# The real control plane is a set of Go programs; tests/controlplane builds them once into a cache.
ENVTEST := PYTHONPATH=tests/controlplane $(BIN)/python -m envtest

# Each process has a control plane of its own, for one module at a time, the longest first. They wait
# more than they compute: three processes keep two cores at work.
CONTROLPLANE_TESTS := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-controlplane: $(INSTALLED) ## tests on etcd, kube-apiserver and kwok (needs Go once, or KUBEBUILDER_ASSETS): make test-controlplane KUBERNETES=1.36
	@$(ENVTEST).binaries
	$(CONTROLPLANE_TESTS) tests/controlplane

OLDER_KUBERNETES := 1.36

OTHER_KUBERNETES := $(OLDER_KUBERNETES) 1.38

# Without KUBEBUILDER_ASSETS, which has one version only.
test-other-controlplanes: $(INSTALLED) ## decisions and scheduling on other versions of Kubernetes, if their programs are built
	@unset KUBEBUILDER_ASSETS; failed=; for version in $(OTHER_KUBERNETES); do export KUBERNETES=$$version; \
		if $(ENVTEST).binaries --built; then \
			$(CONTROLPLANE_TESTS) tests/controlplane/test_same_decisions.py tests/controlplane/test_scheduling.py || failed="$$failed $$version"; \
		fi; \
	done; test -z "$$failed" || { echo "FAILED on Kubernetes$$failed"; exit 1; }

test-operators: $(INSTALLED) ## operators of batch workloads make gangs on a kwok cluster (needs Go; builds them once, half an hour)
	@$(ENVTEST).binaries
	$(BIN)/pytest tests/operators

CHAOS_SECONDS ?= 600
CHAOS_SEED ?= 0
CHAOS_SCHEDULER ?= proreus

chaos: $(INSTALLED) ## faults on a real control plane, ten minutes and more: make chaos CHAOS_SECONDS=… CHAOS_SEED=…
	@$(ENVTEST).binaries
	$(BIN)/pytest tests/controlplane/test_fault_run.py tests/controlplane/test_kill_at_each_step.py \
		tests/controlplane/test_fencing.py tests/controlplane/test_controller_kills.py -s --scheduler $(CHAOS_SCHEDULER) \
		--chaos-seconds $(CHAOS_SECONDS) --chaos-seed $(CHAOS_SEED) --chaos-logs build/chaos

WORKLOAD ?= SchedulingBasic/5000Nodes_10000Pods

bench: $(INSTALLED) ## kube-scheduler and proreus in turn on the same workload: make bench WORKLOAD=…
	@$(ENVTEST).binaries
	$(BIN)/proreus bench --assets "$$($(ENVTEST).binaries --where)" --workload $(WORKLOAD) --backlog --bare --rounds 3

ORACLE := tests/conformance/oracle
ORACLE_FUZZ ?=

ORACLE_PROGRAM := $(ORACLE)/build/oracle-$(KUBERNETES)

# A workspace joins the sources with the module of the version's control plane, which pins all
# others; a build tag chooses what differs between versions.
$(ORACLE_PROGRAM): $(wildcard $(ORACLE)/*.go) $(ORACLE)/go.mod $(ORACLE)/kubernetes-$(KUBERNETES).work
	cd $(ORACLE) && GOWORK=$$PWD/kubernetes-$(KUBERNETES).work CGO_ENABLED=0 GOTOOLCHAIN=auto \
		go build -trimpath -tags kubernetes_$(subst .,_,$(KUBERNETES)) -o build/oracle-$(KUBERNETES) .

oracle: $(ORACLE_PROGRAM) ## kube-scheduler's own code as a program that answers questions (needs Go): make oracle KUBERNETES=1.36

ASK_ORACLE = PYTHONPATH=tests $(BIN)/python -m conformance.oracle

oracle-fuzz: $(INSTALLED) $(ORACLE_PROGRAM) ## compare proreus with kube-scheduler's own code on random cases (needs Go): make oracle-fuzz KUBERNETES=1.36
	$(ASK_ORACLE).fuzz $(ORACLE_PROGRAM) $(ORACLE_FUZZ) --out $(ORACLE)/build/differences-$(KUBERNETES).jsonl

SINCE ?= 1.37

# Another program than that of SINCE, such as a copy of that of an older patch release.
BEFORE ?=

oracle-changes: $(INSTALLED) $(ORACLE_PROGRAM) ## compare two versions of kube-scheduler on random cases: make oracle-changes KUBERNETES=1.38 SINCE=1.37
	@test -n "$(BEFORE)" || $(MAKE) --no-print-directory oracle KUBERNETES=$(SINCE)
	$(ASK_ORACLE).fuzz $(ORACLE_PROGRAM) $(ORACLE_FUZZ) --against $(or $(BEFORE),$(ORACLE)/build/oracle-$(SINCE)) \
		--out $(ORACLE)/build/changes-$(KUBERNETES).jsonl

ORACLE_CASES ?=

oracle-cases: $(INSTALLED) $(ORACLE_PROGRAM) ## record fresh cases of a version: make oracle-cases KUBERNETES=1.38 ORACLE_CASES="spread --seed 7"
	$(ASK_ORACLE).record $(ORACLE_PROGRAM) $(ORACLE_CASES) --out $(ORACLE)/build/cases-$(KUBERNETES)

WAKEUPS ?= --scripts 20000

wakeups: $(INSTALLED) ## random scripts after which no pod may wait that could run (about an hour): make wakeups WAKEUPS="--scripts 2000 --seed 1 storage"
	@mkdir -p build
	PYTHONPATH=tests $(BIN)/python -m conformance.wakeups.run $(WAKEUPS) --out build/left-behind.jsonl

HOSTILE ?=

hostile: $(INSTALLED) ## hostile objects of every kind and malformed watch lines, judged by waits and memory
	PYTHONPATH=tests:tests/integration $(BIN)/python -m hostile.run $(HOSTILE)

HOSTILE_OBJECTS ?= 500
HOSTILE_SEED ?= 1

hostile-real: $(INSTALLED) ## hostile objects of every kind on a real apiserver, next to plain pods: make hostile-real HOSTILE_OBJECTS=… (of each kind)
	@$(ENVTEST).binaries
	$(BIN)/pytest tests/controlplane/test_hostile_run.py -s --hostile-objects $(HOSTILE_OBJECTS) --hostile-nodes 5000 \
		--hostile-seed $(HOSTILE_SEED) --hostile-logs build/hostile

kwok-up: $(INSTALLED) ## a cluster with fake kubelets on this machine, without containers
	@$(ENVTEST).kwok up

kwok-down: $(INSTALLED) ## delete that cluster
	@$(ENVTEST).kwok down

IMAGE = proreus:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_FLAGS ?=

# The first engine that works: docker has a client without its daemon too.
ENGINE = $(firstword $(foreach each,docker podman buildah,$(shell $(each) info >/dev/null 2>&1 && echo $(each))))

image: ## build the image by docker, podman or buildah: make image IMAGE=… ENGINE=… IMAGE_FLAGS="--build-arg …"
	@engine="$(ENGINE)"; test -n "$$engine" || { echo "make image needs docker with a running daemon, podman or buildah; none of them answers"; exit 1; }; \
	$$engine build --tag $(IMAGE) $(IMAGE_FLAGS) .

.PHONY: image-with-registry
image-with-registry:
	@case "$(IMAGE)" in */*) ;; *) echo "make push needs an image with its registry: make push IMAGE=registry.example.com/team/$(IMAGE)"; exit 1;; esac

push: image-with-registry image ## build the image and push it: make push IMAGE=registry.example.com/team/proreus:0.1.0
	@engine="$(ENGINE)"; $$engine push $(IMAGE)

KIND_CLUSTER := proreus

kind-up: ## proreus as a second scheduler in a kind cluster (needs docker, kind, kubectl)
	@for tool in docker kind kubectl; do command -v $$tool >/dev/null || { echo "make kind-up needs docker, kind and kubectl; $$tool is not installed"; exit 1; }; done
	@docker info >/dev/null 2>&1 || { echo "make kind-up needs a running docker; its daemon does not answer"; exit 1; }
	@kind get clusters 2>/dev/null | grep -qx $(KIND_CLUSTER) || kind create cluster --config kind-config.yaml
	docker build --tag $(IMAGE) $(IMAGE_FLAGS) .
	kind load docker-image $(IMAGE) --name $(KIND_CLUSTER)
	kubectl --context kind-$(KIND_CLUSTER) apply -k deploy/second-scheduler
	kubectl --context kind-$(KIND_CLUSTER) --namespace proreus rollout status deployment/proreus --timeout=180s

bench-engine: $(INSTALLED) ## the scheduling cycle by family of constraints, without a network
	PYTHONPATH=tests $(BIN)/python -m bench.engine

bench-own-plugin: $(INSTALLED) ## what an out-of-tree plugin costs, form by form
	PYTHONPATH=tests $(BIN)/python -m bench.own_plugin

COSCHEDULING := tests/bench/gang_comparison/coscheduling
COSCHEDULING_PROGRAM := $(CURDIR)/build/kube-scheduler-with-coscheduling

$(COSCHEDULING_PROGRAM): $(COSCHEDULING)/main.go $(COSCHEDULING)/go.mod
	cd $(COSCHEDULING) && CGO_ENABLED=0 go build -trimpath -o $@ .

bench-gangs: $(INSTALLED) $(COSCHEDULING_PROGRAM) ## more gangs than fit: kube-scheduler 1.36, the original Coscheduling and ours
	@KUBERNETES=$(OLDER_KUBERNETES) $(ENVTEST).binaries
	KUBERNETES=$(OLDER_KUBERNETES) PYTHONPATH=tests $(BIN)/python -m bench.gang_comparison --coscheduling $(COSCHEDULING_PROGRAM)

bench-families: $(INSTALLED) ## the same for proreus and kube-scheduler, by their own metrics
	@$(ENVTEST).binaries
	PYTHONPATH=tests $(BIN)/python -m bench.families

DURATION ?= 3600

soak: $(INSTALLED) ## does anything grow in an hour? first the embedded cluster, then a real one: make soak DURATION=600
	@$(ENVTEST).binaries
	PYTHONPATH=tests $(BIN)/python -m bench.soak --duration $(DURATION) --cluster embedded --plot soak-embedded.svg
	PYTHONPATH=tests $(BIN)/python -m bench.soak --duration $(DURATION) --cluster real --plot soak-real.svg

bench-startup: $(INSTALLED) ## seconds to the first binding after a start and a take-over, beside kube-scheduler
	@$(ENVTEST).binaries
	PYTHONPATH=tests $(BIN)/python -m bench.startup

TOOLS := build/tools

$(TOOLS)/.installed: requirements/tools.txt
	@$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install $(LOCKED) --requirement requirements/tools.txt
	@touch $@

CLIENTS := build/clients

$(CLIENTS)/.installed: requirements/clients.txt tests/clients/package-lock.json
	@$(PYTHON) -m venv $(CLIENTS)/python
	$(CLIENTS)/python/bin/pip install $(LOCKED) --requirement requirements/clients.txt
	cp tests/clients/package.json tests/clients/package-lock.json $(CLIENTS)
	cd $(CLIENTS) && npm ci --ignore-scripts --silent
	@touch $@

test-clients: $(INSTALLED) $(CLIENTS)/.installed ## clients generated from docs/dry-run.openapi.json, and schemathesis (needs npm)
	$(BIN)/pytest tests/integration/process/test_generated_clients.py

LOCK = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --constraint constraints.txt

lock: $(TOOLS)/.installed ## requirements/*.txt with hashes, from pyproject.toml and constraints.txt
	$(LOCK) --extra controller pyproject.toml --output-file requirements/runtime.txt
	$(LOCK) --extra bench --extra controller --extra dev pyproject.toml requirements/build.in --output-file requirements/development.txt
	$(LOCK) requirements/build.in --output-file requirements/build.txt
	$(LOCK) requirements/tools.in --output-file requirements/tools.txt
	$(LOCK) requirements/site.in --output-file requirements/site.txt
	$(LOCK) requirements/clients.in --output-file requirements/clients.txt

SITE := build/site

$(SITE)/venv/.installed: requirements/site.txt
	@$(PYTHON) -m venv $(SITE)/venv
	$(SITE)/venv/bin/pip install $(LOCKED) --requirement requirements/site.txt
	@touch $@

# The pages in their folders, so that their links are right on the site too.
site: $(SITE)/venv/.installed ## the documentation as a site with search, in build/site/html; broken links are errors
	@rm -rf $(SITE)/pages && mkdir -p $(SITE)/pages
	@git ls-files --cached --others --exclude-standard '*.md' docs deploy examples ':!tests' | xargs cp --parents --recursive --dereference -t $(SITE)/pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mkdocs build --strict --quiet
	@echo "read it: python3 -m http.server --bind 127.0.0.1 --directory $(SITE)/html"

vendored: $(INSTALLED) ## the dashboard's browser libraries from their npm packages (needs npm)
	$(BIN)/python tests/lint/vendored.py --update

SBOM := build/proreus.cdx.json

sbom: $(INSTALLED) $(TOOLS)/.installed ## a CycloneDX list of what the image installs, in build/
	@rm -rf build/runtime && $(PYTHON) -m venv build/runtime
	build/runtime/bin/pip install $(LOCKED) --requirement requirements/runtime.txt
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheels .
	build/runtime/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheels/proreus-*.whl
	@build/runtime/bin/pip uninstall --quiet --yes setuptools pip
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible --output-file $(SBOM) build/runtime/bin/python
	@$(BIN)/python tests/lint/sbom.py $(SBOM)

readme: $(INSTALLED) ## README's commands as a stranger types them, in a new clone (installs anew)
	PYTHONPATH=tests $(BIN)/python -m readme

wheel: $(INSTALLED) ## the wheel alone, in dist/
	$(BIN)/python -m hatchling build -t wheel

release: sbom ## wheel, sdist, chart, image recipe, CRDs, SBOM, checksums and notes, in dist/
	$(BIN)/python release.py dist $(SBOM)

image-check: $(INSTALLED) ## build the image by buildah on a base of Debian's packages, and run it (needs root, buildah, mmdebstrap)
	PYTHONPATH=tests $(BIN)/python -m image

# The Go programs take about ten minutes from cold: they are built while other tests run. Whoever
# needs them waits for the lock of the one that builds, and says so if that failed.
build-ahead: $(INSTALLED)
	@nice -n 19 $(SHELL) -c '$(ENVTEST).binaries' > /dev/null 2>&1 &

ci: build-ahead lint test test-controlplane test-other-controlplanes ## what CI runs

clean: ## remove the virtual environments and what was built
	rm -rf $(VENV) build dist

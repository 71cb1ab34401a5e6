# The chores of this project, one word each. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

# A developer's shell may set these; users' shells do not, and what they meet is what is tested.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.DEFAULT_GOAL := help
.PHONY: help demo test test-days test-long test-real test-faults soak test-systemd test-browser test-analysis pictures check fix fuzz fuzz-guided mutation bench bench-long packages sbom audit lock clean

help: ## List the chores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Measure, decide and advise on a lab link; no AWS account needed
	@$(BIN)/penstock demo $(ARGS)

test: $(VENV)/.development ## The test suite
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m "not real and not faults and not systemd and not browser and not long and not days" $(ARGS)

test-days: $(VENV)/.development ## Days of the daemon in virtual time and other long worlds beyond the first of a kind, and the whole demo
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m days $(ARGS)

test-long: $(VENV)/.development ## Weeks of the daemon in virtual time, and every published figure that an experiment repeats
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "long and not real and not faults" $(ARGS)

test-real: $(VENV)/.development ## The daemon against S3 and SQS servers that others wrote
	@$(BIN)/python -m pytest -m "real and not long" $(ARGS)

test-faults: $(VENV)/.development ## What S3, SQS, the way there and the host itself can do wrong, to a running daemon; root
	@$(BIN)/python -m pytest -m "faults and not long" $(ARGS)

soak: $(VENV)/.development ## Ninety days of weather, twenty times, in virtual time
	@$(BIN)/python -m tests.soak $(ARGS)

test-systemd: $(VENV)/.development ## The unit under a real systemd, booted in a container of its own; root
	@$(BIN)/python -m pytest -m systemd $(ARGS)

test-browser: $(VENV)/.browser ## The report in the system's Chromium: width, dark, print, keys, axe
	@$(BIN)/python -m pytest -m browser $(ARGS)

test-analysis: $(VENV)/.analysis ## The report of a fleet: DuckDB and Spark from the same files; wants Java
	@$(BIN)/python -m pytest tests/unit/analysis $(ARGS)

pictures: $(VENV)/.browser ## The pictures of the README, drawn anew
	@$(BIN)/python -m tests.browser.pictures

check: $(VENV)/.development ## Format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: $(VENV)/.development ## Format, and mend what can be mended safely
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

fuzz: $(VENV)/.development ## A million damaged inputs, and ten minutes of two hostile users beside root
	@$(BIN)/python -m tests.fuzz $(ARGS)

fuzz-guided: $(VENV)/.fuzz ## Inputs that Atheris leads to where code is new, for all that is read in one process
	@$(BIN)/python -m tests.fuzz.guided $(ARGS)

mutation: $(VENV)/.development ## Small changes to the code that decides, and which of them no test notices
	@$(BIN)/python -m tests.mutation $(ARGS)

bench: $(VENV)/.bench ## The benchmarks, short form
	@$(BIN)/python -m bench $(ARGS)

bench-long: $(VENV)/.bench ## The benchmarks with all seeds, and the long simulations
	@$(BIN)/python -m bench --long $(ARGS)

packages: $(VENV)/.development build/nfpm ## A Debian package and an RPM, for the Python of this distribution
	@$(BIN)/python distribution/build.py --nfpm $(CURDIR)/build/nfpm $(ARGS)

# The newest whose modules the proxy has.
build/nfpm:
	@GOBIN=$(CURDIR)/build go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

sbom: $(VENV)/.development ## A bill of materials (CycloneDX) of the daemon's environment, in dist/
	@mkdir -p dist
	@$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml \
		--output-format JSON --output-reproducible --validate --output-file dist/penstock.cdx.json locks/runtime.txt

audit: $(VENV)/.development ## Known vulnerabilities of what is locked; fails where a registry tells of none
	@$(BIN)/uv tool run --quiet pip-audit==2.10.1 --strict --disable-pip --require-hashes -r locks/runtime.txt

lock: $(VENV)/.development ## Resolve the dependencies again
	@$(call resolve,runtime,--extra daemon --extra demo --group build)
	@$(call resolve,development,$(DEVELOPMENT))
	@$(call resolve_beside,browser,--group browser)
	@$(call resolve,fuzz,--group fuzz)
	@$(call resolve_beside,bench,--group bench)
	@$(call resolve_beside,analysis,--extra spark)

# Names, versions and hashes for every supported Python; no address of any registry.
resolve = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o locks/$(1).txt pyproject.toml $(2)
DEVELOPMENT := --extra daemon --extra demo --extra analysis --extra otlp --group build --group dev
# What is needed beside all that development has, which is installed before it.
resolve_beside = $(call resolve,$(1),$(DEVELOPMENT) $(2) --constraint locks/development.txt \
	$$(sed -n 's/^\([^ ]*\)==.*/--no-emit-package \1/p' locks/development.txt))

# Installing: names, versions and hashes from locks/, and this folder itself. Bytecode of what is never imported would
# take as long as all the rest.
$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "penstock needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	@echo "Making the environment in $(VENV) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@touch $@

define install
	@echo "Installing locks/$(1).txt ..." >&2
	@$(PIP) install --no-compile --require-hashes --no-deps -r locks/$(1).txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
endef

$(VENV)/.runtime: $(VENV)/.venv locks/runtime.txt pyproject.toml
	$(call install,runtime)
$(VENV)/.development: $(VENV)/.venv locks/development.txt pyproject.toml
	$(call install,development)
$(VENV)/.browser: $(VENV)/.development locks/browser.txt
	$(call install,browser)
$(VENV)/.fuzz: $(VENV)/.development locks/fuzz.txt
	$(call install,fuzz)
$(VENV)/.analysis: $(VENV)/.development locks/analysis.txt
	$(call install,analysis)
$(VENV)/.bench: $(VENV)/.development locks/bench.txt
	$(call install,bench)

clean: ## Remove the environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Everything happens in .venv; nothing here asks for root or calls a system package manager.
# A second run of a target starts at once: the stamps in .venv remember what is installed.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -c constraints.txt
DEVICES ?= 8

.PHONY: help run test lint check demo pretend bench bench-verdicts compat jax fuzz pictures docs dist dist-check sbom audit man clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST) | expand -t 24

run: $(VENV)/.installed ## install into .venv and open the live view (ARGS="--once" passes on)
	@$(BIN)/vramscope $(ARGS)

test: $(VENV)/.tested ## run all tests (ARGS="-k replay" passes on)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.tested ## format, lint, types and import contracts, nothing changed
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

check: lint test ## lint and test: the whole loop before a change goes in

demo: $(VENV)/.trained ## a real job on a simulated card, and the live view on it: leak and out of memory (installs torch)
	@$(BIN)/vramscope demo $(ARGS)

pretend: $(VENV)/.installed ## live view of pretend devices (DEVICES=64); needs a C compiler
	@$(BIN)/python -m benchmarks.pretend --devices $(DEVICES) $(ARGS)

bench: $(VENV)/.benched ## measure CPU, memory, start-up and latency, and those of nvitop; JSON in benchmarks/results
	@$(BIN)/python -m benchmarks $(ARGS)

bench-verdicts: $(VENV)/.installed ## score leak and out-of-memory verdicts, and the rules of others (ARGS="--quick" passes on)
	@$(BIN)/python -m benchmarks.verdicts $(ARGS)

compat: $(VENV)/.compat ## train with real frameworks, plain and in each way of vramscope; table in docs/compatibility.md
	@$(BIN)/python -m benchmarks.compat $(VENV)/compat/bin/python $(VENV)/compat/examples $(ARGS)

jax: $(VENV)/.jax ## test with JAX itself, on the CPU
	@$(BIN)/python -m pytest -n 0 -q tests/engine/probe/test_jax_itself.py

fuzz: $(VENV)/.tested ## fuzz the readers for a minute each, guided by coverage (ARGS="series --seconds 600"; --blind: faster, without)
	@$(PIP) --quiet --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz $(ARGS)

pictures: $(VENV)/.tested ## draw the pictures of the documentation from the program itself
	@$(BIN)/python docs/pictures.py

docs: $(VENV)/.documented ## build the documentation as a site: build/site/index.html, to be opened in a browser
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.tested ## build the wheel and the source distribution: dist/, the same bytes at each try
	@$(BIN)/python .ci/build-dist dist

man: $(VENV)/.installed ## write the manual pages and completions that packages install: share/ (man -l share/man/man1/vramscope.1)
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python .ci/write-share share

dist-check: dist $(VENV)/.tooled ## build them, and let twine say whether a package index would take them
	@$(VENV)/tools/bin/twine check --strict dist/*.whl dist/*.tar.gz

sbom: $(VENV)/.tooled ## list every pinned package: dist/vramscope.cdx.json (CycloneDX), the same bytes at each try
	@mkdir -p dist
	@$(VENV)/tools/bin/python -W ignore -m cyclonedx_py requirements constraints.txt --pyproject pyproject.toml --mc-type application \
		--short-PURLs --output-reproducible --spec-version 1.6 --output-format JSON --validate -o dist/vramscope.cdx.json
	@$(BIN)/python .ci/check-sbom dist/vramscope.cdx.json constraints.txt

audit: $(VENV)/.tooled ## ask the advisory database about every pinned package; one that it does not know fails
	@$(VENV)/tools/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

clean: ## remove what the targets above have made
	rm -rf $(VENV) build dist share *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@sh .ci/make-venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "vramscope: installing into $(VENV)" >&2
	@$(PIP) --editable '.[figures,settings]' >&2 && touch $@

$(VENV)/.trained: $(VENV)/.installed
	@echo "vramscope: installing what the demo trains with into $(VENV)" >&2
	@$(PIP) --editable '.[figures,settings,train]' >&2 && touch $@

$(VENV)/.tested: $(VENV)/.installed
	@echo "vramscope: installing what the tests need into $(VENV)" >&2
	@$(PIP) --quiet --editable '.[test,figures,train,parquet]' && touch $@

$(VENV)/.documented: $(VENV)/.installed
	@echo "vramscope: installing what the documentation is built with into $(VENV)" >&2
	@$(PIP) --quiet --editable '.[docs]' && touch $@

$(VENV)/.tooled: .ci/tools.txt | $(BIN)/python
	@echo "vramscope: installing the tools for packages into $(VENV)/tools" >&2
	@$(BIN)/python -m venv $(VENV)/tools
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/tools/bin/python -m pip install --quiet -r .ci/tools.txt && touch $@

$(VENV)/.benched: $(VENV)/.installed benchmarks/peers.txt
	@echo "vramscope: installing the peers into $(VENV)/peers" >&2
	@$(BIN)/python -m venv $(VENV)/peers
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/peers/bin/python -m pip install --quiet -r benchmarks/peers.txt && touch $@

$(VENV)/.jax: $(VENV)/.tested benchmarks/compat/requirements-jax.txt
	@echo "vramscope: installing JAX into $(VENV)/jax" >&2
	@$(BIN)/python -m venv $(VENV)/jax
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/jax/bin/python -m pip install --quiet -r benchmarks/compat/requirements-jax.txt && touch $@

$(VENV)/.compat: $(VENV)/.trained benchmarks/compat/requirements.txt benchmarks/compat/requirements-alone.txt benchmarks/compat/requirements-triton.txt benchmarks/compat/examples.py
	@echo "vramscope: installing the frameworks into $(VENV)/compat" >&2
	@$(BIN)/python -m benchmarks.compat.environment $(VENV)/compat
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/compat/bin/python -m pip install --quiet -c constraints.txt -r benchmarks/compat/requirements.txt
	@PIP_DISABLE_PIP_VERSION_CHECK=1 DS_BUILD_OPS=0 $(VENV)/compat/bin/python -m pip install --quiet -c constraints.txt --no-deps --no-build-isolation -r benchmarks/compat/requirements-alone.txt
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/compat/bin/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/compat/triton -r benchmarks/compat/requirements-triton.txt
	@$(BIN)/python -m benchmarks.compat.examples $(VENV)/compat/examples $(EXAMPLES) && touch $@

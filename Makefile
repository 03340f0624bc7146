# Each target sets everything up on a machine that has Python 3.11 to 3.13 and make.
# TORCH_INDEX: where to take torch from, e.g. https://download.pytorch.org/whl/cpu for the small build without CUDA.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
TORCH_INDEX ?=
VENV := .venv
LOWEST := .venv-lowest
BIN := $(CURDIR)/$(VENV)/bin
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt

.PHONY: setup demo repro test test-lowest test-system test-faults test-cuda bench evidence docs lint clean

setup: $(VENV)/.ready

# The library alone, in a minute and without torch: what `make demo` needs. uv installs in seconds where pip takes
# minutes. It compiles what it installs: without bytecode, and where nothing may write it (PYTHONDONTWRITEBYTECODE),
# every process would compile all that it imports
$(VENV)/.library: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11, 3.12 or 3.13 found; install one or say PYTHON=/path/to/it"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(INSTALL) -e '.[all]'
	@touch $@

# torch first and alone, so that nothing else chooses its build; then everything at the versions we tested
$(VENV)/.ready: $(VENV)/.library .dvc/config
	$(BIN)/pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(INSTALL) -e '.[all,pipeline,dev,docs]'
	@git rev-parse -q --git-dir >/dev/null 2>&1 || $(BIN)/dvc config --local core.no_scm true
	@mkdir -p .prefect && chmod 700 .prefect # what runs leave here is for nobody else
	@$(BIN)/python -c "from tasks.records.store import make_private; make_private()"
	@DO_NOT_TRACK=1 $(BIN)/prefect server database upgrade -y >/dev/null
	@touch $@

# Made-up predictions to a map, a verdict and routed rows
demo: $(VENV)/.library
	@chmod 700 data # git creates it readable by everyone
	$(BIN)/relmap demo --folder data/demo

repro: setup
	$(BIN)/python -m flows.refresh

# The tests, and each benchmark once with few rows, which needs the libraries that benchmarks compare with
test: setup
	$(INSTALL) -e '.[bench]'
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder # long files first

# The library's tests with the lowest versions that pyproject.toml allows. One is left out: when threads use polars 1.36
# for the first time at once, it can fail ("dictionary changed size during iteration").
test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile tests/library \
		--deselect "tests/library/laws/test_services.py::test_first_use_in_a_process_is_thread_safe"

$(LOWEST)/.ready: $(VENV)/.library pyproject.toml
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[all]' 'pandas>=2.2.3'
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(LOWEST)/bin/python pytest pytest-xdist hypothesis jsonschema pyyaml
	@touch $@

# What needs a program that pip does not install; each test says what it misses, and fails.
# PySpark has a folder of its own: beside it, importing Great Expectations ends the process.
test-system: setup
	$(INSTALL) -e '.[system]'
	$(INSTALL) --upgrade --target $(VENV)/system pyspark
	PYTHONPATH=$(VENV)/system $(BIN)/python -m pytest tests/system tests/test_wheel.py -m system

# Kills, full disks, flipped bits, servers that die: what was promised then, and what happens
test-faults: setup
	$(BIN)/python -m pytest tests/faults -m "faults or not faults" -n 2 --dist worksteal

# Compare the projection on a GPU with that on the CPU, in at most five minutes. It sets nothing up: PYTHON needs PyTorch
# with CUDA, NumPy, SciPy, polars and pydantic only. CUDA_OPTIONS='--device cpu' tests the script without a GPU.
CUDA_OPTIONS ?=
test-cuda:
	$(PYTHON) -m benchmarks.cuda $(CUDA_OPTIONS)

# Compare the speed with other libraries, on the same rows in the same process; writes bench.json
bench: setup
	$(INSTALL) -e '.[bench]'
	$(BIN)/python -m pytest benchmarks --full --benchmark-quiet

# Measures the tables of docs/evidence and of the README, in 5 minutes of processor time, or 30 with real data. It writes
# docs/evidence/results.json; without REAL_DATA the records of real data stay as they are.
evidence: setup
	$(BIN)/python -m benchmarks.evidence $(if $(REAL_DATA),--real-data "$(REAL_DATA)")

# The documentation site in site/. It runs the code of its pages; a warning is an error.
docs: setup
	$(BIN)/python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet \
		--doctree-dir docs/_generated/doctrees docs site
	@echo "the documentation: site/index.html"

# Style and types, and what no test can run: workflows, the container image and the compose file
lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/hadolint Containerfile

clean:
	rm -rf site docs/_generated $(VENV) $(LOWEST) .prefect data/raw data/base data/runs data/metrics data/report data/explored data/demo data/.state

# Two commands on a fresh machine: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test slow-test fuzz reproduce-small chromium lint format docs package hooks clean

quickstart: .venv/ready  ## Install, then train and compare on the built-in corpus
	$(BIN)/fastformer quickstart

test: .venv/dev lint chromium  ## Lint, then the default test suite
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

slow-test: .venv/dev  ## Long runs and large inputs
	$(BIN)/pytest -m slow -n 2 --dist loadscope

CASES ?= 1000
SEED ?= 1
fuzz: .venv/dev  ## Damaged inputs, arguments and run folders for the verbs of all tasks: make fuzz CASES=10000 SEED=1
	$(BIN)/python -m tests.fuzz --cases $(CASES) --seed $(SEED)

reproduce-small: .venv/ready  ## Every table and figure of the paper, small, on the built-in corpus
	$(BIN)/fastformer reproduce all --scale small --output runs/reproduce-small

chromium:  ## The browser that the page of `serve` is tested in, where it can be installed
	@command -v chromium >/dev/null || apt-get install -y chromium >/dev/null 2>&1 \
		|| echo "There is no chromium, and it cannot be installed here: the tests of the page are skipped."

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/dev  ## Write docs/cli.md from the program, then build the site into site/
	$(BIN)/python scripts/write_cli_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: .venv/dev  ## Build wheels and sdists of both packages, install the wheels into an empty environment and try them there
	rm -rf build dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --outdir dist packages/fastformer-base-en
	sh scripts/try_package.sh $(PYTHON) dist/*.whl

hooks: .venv/dev  ## Check every commit before it is made
	$(BIN)/pre-commit install

# constraints.txt carries the exact versions; torch is pinned there because newer builds pull gigabytes of CUDA.
.venv/ready: pyproject.toml constraints.txt packages/fastformer-base-en/pyproject.toml  ## What a user needs
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'fastformer needs Python 3.11 or newer; try: make PYTHON=python3.12')"
	@echo "Installing into .venv. This takes some minutes the first time, and pip is silent meanwhile."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e ".[all]"
	$(BIN)/pip install --quiet --no-deps -e packages/fastformer-base-en
	touch $@

.venv/dev: .venv/ready  ## What its developers need besides
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

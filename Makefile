# Two commands do everything on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt

# The packages that everything else is built on are to be covered by tests.
CORE := insertion config/* text/* orders/* data/* models/* models/kernels/* decoding/* adaptive/* metrics/* inference/canvas_text inference/completion

# A process a core, up to four, each with one thread: tensors of tests are too small to share between threads.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo test check docs slow faults audit clean

demo: $(VENV)/.demo
	$(BIN)/anyorder demo

test: $(VENV)/.test check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) --cov --cov-report=term --durations=10
	$(BIN)/coverage report --fail-under=90 --include=$$(printf 'src/anyorder/%s.py,' $(CORE))

check: $(VENV)/.test
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(MKDOCS)

# The documentation as a site in site/, after the reference of all recipe keys is written again.
docs: $(VENV)/.test
	$(BIN)/python -c "from anyorder.config.template import reference; print(reference(), end='')" > docs/reference/recipe.md
	$(MKDOCS)
	@echo "open site/index.html in a browser, or run $(BIN)/mkdocs serve"

# Minutes to hours: every order on the synthetic task, real parsers.
slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow

# Kills, full disks, hostile folders, several processes and 10,000 command lines: an hour or two.
FAULTS := PYTHONPATH=tests $(BIN)/python tests/faults
faults: $(VENV)/.test
	$(FAULTS)/hostile.py
	$(FAULTS)/processes.py
	$(FAULTS)/disk.py --seed 1 --minutes 20
	$(FAULTS)/kill.py --seed 1 --tries 100 --minutes 40
	$(FAULTS)/fuzz.py --seed 1 --tries 10000 --minutes 60

# Known vulnerabilities of everything that is installed. The package itself is not on PyPI.
audit: $(VENV)/.test
	$(INSTALL) pip-audit
	$(BIN)/pip-audit --skip-editable --desc off

clean:
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e .
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt requirements/english-pipeline.txt
	$(INSTALL) -e '.[dev,docs,syntax,metrics,images,viz,serve]'
	$(INSTALL) --no-deps --require-hashes -r requirements/english-pipeline.txt
	touch $@ $(VENV)/.demo

# Two commands matter: `make demo` and `make test`. Both set up what they need in .venv, from hash-locked requirements.
.PHONY: help demo test test-apps chaos bench lint format lock clean
.DEFAULT_GOAL := help

VENV := .venv
RUN := PATH="/usr/bin:$$PATH" $(VENV)/bin/python

help:
	@echo 'make demo           run OpenFace on this machine and look at it (CHECK=1: check it unattended; PORT_BASE=8090)'
	@echo 'make test           style, types, import rules, migrations, all tests (SUITES="jobs workers": only these)'
	@echo 'make test-apps      real applications behind /run, in a real browser: fetches from PyPI and npm, once (2.8 GB on disk)'
	@echo 'make chaos          schedules of faults, as many as you like (N=1000; SEED=7 makes the same again; HTTP=1);'
	@echo '                    KILLS=100: kill -9 of a worker as often, with a real container engine'
	@echo 'make bench          measure, one JSON object per line, also in bench.json'
	@echo 'make lint, format   only the style; make lock: renew the locked requirements; make clean: remove what was made'

demo: $(VENV)/.installed
	@$(RUN) manage.py demo $(if $(CHECK),--check) $(if $(PORT_BASE),--port-base $(PORT_BASE))

test: $(VENV)/.installed-test
	@$(RUN) scripts/run_tests.py $(SUITES)

test-apps: $(VENV)/.installed-test
	@echo 'fetches into .venv-apps, once: Gradio 4, 5 and 6, Streamlit, JupyterLab, FastAPI, Flask, NiceGUI, Panel, Dash, marimo,'
	@echo 'Shiny, Chainlit, textual-serve and aiohttp from PyPI; Express, socket.io and Vite from npm, which has to be installed'
	@command -v npm >/dev/null || { echo 'npm is not installed (apt-get install npm)'; exit 1; }
	@OPENFACE_TEST_INDEX=1 OPENFACE_REQUIRE=docker,browser $(RUN) -m pytest tests/apps -v $(if $(APP),-k $(APP))

chaos: $(VENV)/.installed-test
	@$(if $(KILLS),$(RUN) -m tests.gpu_worker.kills --rounds $(KILLS) $(if $(SEED),--seed $(SEED)),$(RUN) -m tests.chaos \
		$(if $(N),--schedules $(N)) $(if $(SEED),--seed $(SEED)) $(if $(HTTP),--http) $(OPTIONS))

bench: $(VENV)/.installed-test
	@$(RUN) -m benchmarks $(BENCH)

lint: $(VENV)/.installed-test
	@$(RUN) scripts/run_tests.py --only-lint

format: $(VENV)/.installed-test
	@$(VENV)/bin/ruff check --fix-only . && $(VENV)/bin/ruff format .

# --- what is installed, and only when its list has changed ------------------------------------------------------------
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes

$(VENV)/.made:
	@scripts/make_venv.sh $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made requirements/control-plane.txt requirements/worker.txt requirements/build.txt pyproject.toml
	@echo 'installing into $(VENV) …'
	@$(PIP) -r requirements/control-plane.txt -r requirements/worker.txt -r requirements/build.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--config-settings editable_mode=compat --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements/test.txt
	@echo 'installing the tools for tests into $(VENV) …'
	@$(PIP) -r requirements/test.txt
	@touch $@

# test.txt holds everything, so that the others agree with it.
UV := $(VENV)/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url
lock: $(VENV)/.installed-test
	@$(VENV)/bin/python -m pip install --quiet uv
	@$(UV) requirements/build.in -o requirements/build.txt
	@$(UV) pyproject.toml --extra control-plane --extra worker --extra test -o requirements/test.txt
	@$(UV) pyproject.toml --extra control-plane -c requirements/test.txt -o requirements/control-plane.txt
	@$(UV) pyproject.toml --extra worker -c requirements/test.txt -o requirements/worker.txt

clean:
	@rm -rf $(VENV) .venv-apps build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench.json
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [ -d .openface ]; then echo 'kept .openface: it holds your keys, database and repositories (make demo used them)'; fi

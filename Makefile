# One command per task. `make` alone prints this list.
#
# The environment is .venv; choose its Python with PYTHON=/path/to/python3.12.

PORT ?= 8000
PY = .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup book html lab test check faults proof bench notebooks screenshots vendor lock \
	peers model clean distclean

help:
	@echo "Speculative Decoding, Built from Scratch"
	@echo
	@echo "  make book        build the book and open it in the browser (PORT=$(PORT))"
	@echo "  make lab         open the chapters in JupyterLab, to run and change them"
	@echo "  make test        check everything: code, chapters, pages"
	@echo "  make bench       measure the speed: plain and speculative decoding, and peers"
	@echo
	@echo "  make html        build the book into _build/html, no more"
	@echo "  make lite        build the book with chapters that run in the browser"
	@echo "  make pdf         print the built book into _build/pdf; the site then offers it"
	@echo "  make check       the quick part of the tests: lint, spelling, types, units"
	@echo "  make faults      plant faults in the library; each must be noticed (15 minutes)"
	@echo "  make mutants     change the core in every small way; tests must notice (half an hour)"
	@echo "  make proof       run the tests that count what they try; the book shows it"
	@echo "  make status      keep what the last tests took, for the page of the build's status"
	@echo "  make notebooks   run the chapters and store their outputs (NB=notebooks/04*.ipynb)"
	@echo "  make screenshots pictures of pages, three widths, light and dark (PAGES='notebooks/04')"
	@echo "  make model       fetch the real model of Part V (98 MB)"
	@echo "  make peers       install torch and transformers, to check and measure beside"
	@echo "  make lock        resolve requirements.in into requirements.txt"
	@echo "  make clean       remove what was built; the environment stays"
	@echo "  make distclean   remove the environment too"

setup:
	@PYTHON="$(PYTHON)" sh tools/venv.sh

book: html
	@$(PY) tools/serve.py --port $(PORT)

html: setup vendor
	@$(PY) tools/build_site.py

.PHONY: lite
lite: setup vendor
	@$(PY) tools/build_lite.py
	@$(PY) tools/build_site.py

.PHONY: pdf
pdf: setup
	@test -e _build/html/index.html || $(MAKE) html
	@$(PY) tools/vendor.py --paper
	@$(PY) tools/build_pdf.py

lab: setup
	@root=; test "$$(id -u)" != 0 || root=--allow-root; \
	$(PY) -m jupyterlab --notebook-dir=notebooks $$root

test: setup
	@$(PY) tools/run_tests.py

check: setup
	@$(PY) tools/run_tests.py --quick

faults: setup
	@$(PY) tools/planted_faults.py --all --report tests/planted_faults_report.json

.PHONY: mutants
mutants: setup
	@$(PY) tools/mutants.py $(MODULES) --report tests/mutation_report.json

proof: setup
	@$(PY) tools/proof.py run

.PHONY: status
status: setup
	@$(PY) tools/build_status.py keep

bench: setup
	@$(PY) tools/bench.py

notebooks: setup
	@$(PY) tools/execute_notebooks.py $(NB)

screenshots: setup
	@$(PY) tools/screenshots.py $(PAGES)

vendor: setup
	@$(PY) tools/vendor.py

model: setup
	@$(PY) -m specdec_lib models get smollm2

peers: setup
	@$(PY) -m pip install --quiet --requirement requirements-peers.txt

lock: setup
	@sh tools/lock.sh

clean:
	rm -rf _build build dist screenshots bench-report *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .jupyter_cache
	find . -name .venv -prune -o -name __pycache__ -type d -print | xargs rm -rf
	find . -name .venv -prune -o -name .ipynb_checkpoints -type d -print | xargs rm -rf

distclean: clean
	rm -rf .venv book/assets/vendor tests/vendor tools/paper/vendor

# make train   set everything up and train the miniature (minutes)
# make test    set everything up and run all tests
# make bench   set everything up and measure speed against peers (minutes)
# make demo    train if nothing is trained yet, then continue prompts here and in llama.cpp, token for token
# make oracles run the tests against outside programs alone and keep what they measured
# make test-extras  the notebooks through nbgrader and otter-grader, in an environment of its own, .venv-extras
# make lab     set everything up and open the notebooks in JupyterLab
# make notebooks  build the notebooks again whose sources have changed (authors)
# make experiments  run the lab, every experiment (at most 90 minutes on two cores; a second call goes on where it was);
#              k3 experiment NAME --close adds seeds where a difference is small beside its spread
# make figures draw the pictures of README again
# make site    the notebooks as web pages in build/site, to open without the network; make slides: a deck a chapter
#              (in a real browser: tests/browser/check_site.py, by hand)
# make venv    only set up; put PyTorch's CPU build into .venv before `make train` if you want it, see README

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
JOBS   ?= 2
FLA    := build/peers/.fla-core-0.6.0

.PHONY: venv train test test-extras demo oracles lab notebooks experiments bench figures site slides clean

train: $(VENV)/.course
	$(PY) -m k3_scratch train --preset mini --out runs/mini

test: $(VENV)/.tests
	$(PY) -m ruff check .
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term:skip-covered --cov-fail-under=95

# the run that was finished last; another one: make demo RUN=runs/other
demo: $(VENV)/.demo
	ls runs/*/summary.json >/dev/null 2>&1 || $(PY) -m k3_scratch train --preset mini --out runs/mini
	$(PY) -m k3_scratch demo $(RUN)

test-extras: $(VENV)-extras/.done
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(VENV)-extras/bin/python -m pytest tests/extras

oracles: $(VENV)/.tests
	rm -rf build/oracles build/oracles.json
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m pytest tests/oracles
	cp build/oracles.json figures/results/oracles.json

lab: $(VENV)/.course
	$(PY) -m jupyterlab notebooks

notebooks: $(VENV)/.tests
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m k3_scratch notebooks

experiments: $(VENV)/.course
	$(PY) -m k3_scratch experiment --all --jobs $(JOBS)

figures: $(VENV)/.course
	$(PY) -m k3_scratch figures

site: $(VENV)/.authors
	$(PY) -m k3_scratch site

slides: $(VENV)/.authors
	$(PY) -m k3_scratch slides

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m k3_scratch bench

venv: $(VENV)/bin/python

$(VENV)/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed; say which: make PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV) || { rm -f $(VENV)/bin/python*; exit 1; }

$(VENV)/.course: requirements.txt constraints.txt pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet -r requirements.txt
	$(PY) -m pip install --quiet --no-deps -e .
	@touch $@

$(VENV)/.tests: requirements-tests.txt requirements-authors.txt requirements-oracles.txt requirements-export.txt requirements-bench.txt $(VENV)/.course $(FLA)
	$(PY) -m pip install --quiet -r requirements-tests.txt -r requirements-oracles.txt
	$(PY) -m pip install --quiet --no-deps mlx-lm==0.32.2
	@touch $@

$(VENV)/.authors: requirements-authors.txt $(VENV)/.course
	$(PY) -m pip install --quiet -r requirements-authors.txt
	@touch $@

$(VENV)/.demo: requirements-export.txt $(VENV)/.course
	$(PY) -m pip install --quiet -r requirements-export.txt
	@touch $@

$(VENV)/.bench: requirements-bench.txt $(VENV)/.course $(FLA)
	$(PY) -m pip install --quiet -r requirements-bench.txt
	@touch $@

$(VENV)-extras/.done: requirements-extras.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-extras
	$(VENV)-extras/bin/python -m pip install --quiet -r requirements-extras.txt
	$(VENV)-extras/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

# fla-core lies beside the environment: an importable fla would make transformers look for Triton
$(FLA): | $(VENV)/bin/python
	$(PY) -m pip install --quiet --no-deps --upgrade --target build/peers fla-core==0.6.0
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-extras build *.egg-info

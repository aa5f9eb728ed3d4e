# On a machine with Python 3.11+, make and a package registry:
#   make demo    environment, then `spillway demo pard`: broker, training, a bursty replay over four real models, a report
#   make check   environment, then lint, types and import contract beside the unit tests
#   make test    the same with integration and acceptance tests: what must pass
#   make nightly all tests, the long ones too, ten thousand schedules of faults in virtual time, and the torture:
#   make torture two hundred runs of pipelines with states in which processes, links and brokers fail
#   make gpu     on a machine with CUDA: what is tested with torch alone, and what copying a state from the device costs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Where pip or uv is set to a CPU (or other) index of torch's own, its builds have other hashes than the lock's:
# then torch is pinned by version alone, and everything else still by hash.
TORCH_INDEX_SET := $(shell { env; $(PYTHON) -m pip config list; } 2>/dev/null | grep -iE '^(pip_|uv_|[a-z:./]*(index|find))' | grep -c '/whl/')
TORCH_PIN := $(shell sed -n "s/^\(torch==[^ ]*\).*/\1/p" requirements/torch.txt)

.PHONY: env demo check test torture nightly gpu lint unit integration acceptance torch bench bench-hop bench-clipper protocol lock clean

env: $(INSTALLED)

$(INSTALLED): requirements/base.txt requirements/torch.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Spillway needs Python 3.11 or later; '$(PYTHON)' is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --require-hashes -r requirements/base.txt
ifeq ($(TORCH_INDEX_SET),0)
	$(PIP) install -q --require-hashes --no-deps -r requirements/torch.txt
else
	@echo "pip or uv is set to an index of torch's own: taking $(TORCH_PIN) from there, without the lock's hashes"
	PIP_INDEX_URL="$${PIP_INDEX_URL:-$$UV_INDEX_URL}" PIP_EXTRA_INDEX_URL="$${PIP_EXTRA_INDEX_URL:-$$UV_EXTRA_INDEX_URL}" \
	  $(PIP) install -q $(TORCH_PIN)
endif
	$(PIP) install -q --no-deps --no-build-isolation -e .
	@# what numba compiled under other names cannot be read under these
	@find agents -name '*.nb[ic]' -delete
	@# every process imports hundreds of modules: where Python may not write bytecode, it would compile them each time
	@# (the rooms by name, as compileall follows no links)
	$(BIN)/python -m compileall -q agents checkpoint examples lineage producers spillway topology
	@touch $@

demo: env
	$(BIN)/spillway demo pard

# Lint, and the tests that load torch (half a gigabyte: so one process does), run beside the others, and say their word
# after them; a failure of any is a failure.
define beside
@log=$$(mktemp) && trap 'rm -f $$log' EXIT && { $(MAKE) --no-print-directory -k lint torch TORCH=$(1) >$$log 2>&1 & other=$$!; \
$(PYTEST) $(2) && tests=0 || tests=$$?; \
wait $$other && others=0 || others=$$?; cat $$log; \
[ $$tests = 0 ] || { echo "Of the first tests, above, these failed:"; $(BIN)/python -m pytest -q --cache-show cache/lastfailed; }; \
exit $$((tests || others)); }
endef
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
TORCH = tests/torch

check: env
	$(call beside,tests/torch/unit,-n 2 tests/unit)

# Three workers, as most of an integration test is waiting. What is long comes first.
test: env
	$(call beside,tests/torch,-n 3 tests/acceptance tests/integration tests/unit)

torch: env
	$(BIN)/python -m pytest $(TORCH)

# GPU_PYTHON: an interpreter that has torch for CUDA, where the environment's own is for the CPU.
GPU_PYTHON ?= $(BIN)/python
gpu: $(if $(filter $(BIN)/%,$(GPU_PYTHON)),env)
	$(GPU_PYTHON) -c 'import sys, torch; torch.cuda.is_available() or sys.exit("torch finds no CUDA device here")'
	$(GPU_PYTHON) -m pytest tests/torch/unit
	$(GPU_PYTHON) -m benchmarks state-copy

# Two hundred pipelines with states, one fault each, over a real broker or three; 10 to 40 s each, over an hour in all.
torture: env
	$(BIN)/python -m pytest -m torture tests/torture

# Everything, whatever fails first.
nightly: env
	@failed=0; SPILLWAY_HYPOTHESIS_PROFILE=nightly SPILLWAY_CONTRACT_SEEDS=20 $(PYTEST) -n 2 -m 'not torture' tests/torch tests/acceptance tests/integration tests/unit || failed=1; \
	$(BIN)/spillway prove --schedules 10000 || failed=1; \
	$(BIN)/python -m pytest -m torture tests/torture || failed=1; exit $$failed

lint: env
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit integration acceptance: env
	$(BIN)/python -m pytest tests/$@

# Every figure of docs/results/overhead.md; about half an hour, on a machine that does nothing else.
bench: bench-hop
	$(BIN)/python -m benchmarks overhead
	$(BIN)/python -m benchmarks overhead examples/plates/pipeline.yaml --payload examples.plates.payload:scene
	$(BIN)/python -m benchmarks start
	$(BIN)/python -m benchmarks simulate
	$(BIN)/python -m benchmarks policy-cost
	$(BIN)/python -m benchmarks reference

# Quix Streams wants another pydantic than ours, so the benchmark runs it from an environment of its own.
bench-hop: env .venv-quix/.installed
	$(BIN)/python -m benchmarks hop --quix-python .venv-quix/bin/python

.venv-quix/.installed: requirements/quix.txt
	$(PYTHON) -m venv .venv-quix
	.venv-quix/bin/python -m pip --disable-pip-version-check install -q --require-hashes -r $<
	@touch $@

# MLServer, too, is asked from an environment of its own.
bench-clipper: env .venv-mlserver/.installed
	$(BIN)/python -m benchmarks clipper --mlserver-python .venv-mlserver/bin/python

.venv-mlserver/.installed: requirements/mlserver.txt
	$(PYTHON) -m venv .venv-mlserver
	.venv-mlserver/bin/python -m pip --disable-pip-version-check install -q --require-hashes -r $<
	@touch $@

# Compiles the gateway's messages anew. A runtime takes what a compiler of its own version or of the one before has made,
# so protobuf 6 serves 6 and 7; it wants an environment of its own.
protocol: .venv-protoc/.installed
	.venv-protoc/bin/python -m grpc_tools.protoc -I . --python_out=. spillway/agents/gateway/protocol/inference.proto

.venv-protoc/.installed:
	$(PYTHON) -m venv .venv-protoc
	.venv-protoc/bin/python -m pip --disable-pip-version-check install -q grpcio-tools==1.81.1 'protobuf==6.33.6'
	@touch $@

# Compiles the locks anew (needs uv on PATH).
CUDA := $(shell sed -n 's/^\(\(nvidia\|cuda\|triton\|torch\)[a-z0-9-]*\)==.*/\1/p' requirements/torch.txt 2>/dev/null)
COMPILE := uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock:
	$(COMPILE) pyproject.toml requirements/build.in --extra serve --extra dev --extra examples --extra grpc --extra onnx --extra sklearn --extra capacity \
	  $(foreach p,$(CUDA),--no-emit-package $(p)) -o requirements/base.txt
	$(COMPILE) requirements/torch.in -o requirements/torch.txt
	$(COMPILE) requirements/quix.in -o requirements/quix.txt
	$(COMPILE) requirements/mlserver.in -o requirements/mlserver.txt

clean:
	rm -rf $(VENV) .venv-quix .venv-mlserver .venv-protoc build *.egg-info .pytest_cache .mypy_cache .ruff_cache

# The commands of this project. Each installs and builds what it needs first, and nothing twice.
#
#   make demo    all-reduce table and a small LLaMA trained over gloo and over agoq, 2 ranks
#   make test    C++ tests, the installed package, house rules, CUDA kernels on the CPU, Python tests
#   make test-consumer-static  a project against static libraries: one more build
#   make test-sanitizers  the C++ tests under ASan and UBSan, and under TSan: two more builds
#   make soak    10,000 random calls over each transport, compared bit for bit: C++ and Python
#   make soak-sanitizers  the C++ part under ASan and UBSan, and under TSan
#   make lint    formatting and static checks of C++ and Python
#   make format  writes the formatting that lint asks for
#   make bench   benchmarks, recorded in bench/results/
#   make bench-links  the same over slow links, beside MPIs and oneCCL: needs root; 20 minutes
#   make scaling  what the cost model says of 8 to 4096 ranks, drawn and tabulated in docs/
#   make clean   removes everything that make has made

TORCH ?= torch==2.13.0
PYTHON ?= python3
JOBS ?= $(shell nproc)

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
# One tree compiles the wheel, the C++ tests and the benchmarks, so that the core is compiled once.
TREE := build/release

export PATH := $(BIN):$(PATH)
export CMAKE_GENERATOR := Ninja
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# What torch's CPU kernels may use in one rank: demo, tests and benchmarks start several.
export OMP_NUM_THREADS ?= 1

sources := $(shell find libagoqcomm csrc python cmake -type f -not -name '*.pyc') \
           CMakeLists.txt pyproject.toml README.md LICENSE
cpp_files = $(shell find libagoqcomm csrc tests bench -name '*.h' -o -name '*.cc' \
              -o -name '*.cu' -o -name '*.cuh')
python_dirs := python tests bench examples tools

# Targets share trees and cores; what runs side by side is decided inside each.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help
help:
	@sed -n '/^#   make/s/^#  //p' Makefile

# --- what everything stands on ---------------------------------------------------------------

# A changed TORCH is a changed file name, and so a new installation.
torch_stamp := $(VENV)/stamp-$(subst =,-,$(firstword $(TORCH)))
dev_stamp := $(VENV)/stamp-requirements
wheel_stamp := $(VENV)/stamp-wheel

$(VENV)/pyvenv.cfg:
	tools/bootstrap.sh
	$(PYTHON) -m venv $(VENV)

$(torch_stamp): $(VENV)/pyvenv.cfg
	rm -f $(VENV)/stamp-torch*
	$(BIN)/pip install --quiet '$(TORCH)'
	touch $@

$(dev_stamp): requirements-dev.txt $(torch_stamp)
	$(BIN)/pip install --quiet -r requirements-dev.txt
	touch $@

$(wheel_stamp): $(sources) $(torch_stamp) $(dev_stamp)
	$(BIN)/pip install --no-build-isolation --no-deps --force-reinstall \
	  --config-settings=build-dir=$(TREE) .
	touch $@

.PHONY: build
build: $(wheel_stamp)

# The C++ tests and benchmarks, and the mpi transport, are switched on in the wheel's own tree.
.PHONY: build-cpp
build-cpp: $(wheel_stamp)
	tools/bootstrap.sh
	cmake -S . -B $(TREE) -DAGOQ_BUILD_TESTS=ON -DAGOQ_BUILD_BENCH=ON -DAGOQ_MPI=AUTO \
	  --log-level=WARNING
	cmake --build $(TREE)

# --- demo ------------------------------------------------------------------------------------

.PHONY: demo
demo: $(wheel_stamp)
	$(BIN)/python examples/demo.py

# --- test ------------------------------------------------------------------------------------

CTEST := ctest --output-on-failure --timeout 300 --parallel $(JOBS)
PYTEST := $(BIN)/python -m pytest

.PHONY: test
test: test-cpp test-consumer test-rules test-kernels test-python

.PHONY: test-cpp
test-cpp: build-cpp
	$(CTEST) --test-dir $(TREE)

# A project of its own that knows nothing of this tree but the installed package.
define consume  # consume TREE, FOLDER
	rm -rf $(CURDIR)/build/$(2)
	cmake --install $(1) --prefix $(CURDIR)/build/$(2)/prefix >/dev/null
	cmake -S tests/consumer -B build/$(2) -DCMAKE_PREFIX_PATH=$(CURDIR)/build/$(2)/prefix \
	  --log-level=WARNING
	cmake --build build/$(2)
	$(CTEST) --test-dir build/$(2)
endef

.PHONY: test-consumer test-consumer-static
test-consumer: build-cpp
	$(call consume,$(TREE),consumer)

# Static libraries, that of the mpi transport too where there is MPI: one more build.
test-consumer-static: $(dev_stamp)
	tools/bootstrap.sh
	cmake -S . -B build/static -DBUILD_SHARED_LIBS=OFF -DAGOQ_MPI=AUTO --log-level=WARNING
	cmake --build build/static
	$(call consume,build/static,consumer-static)

.PHONY: test-rules
test-rules: build-cpp
	AGOQ_BUILD_TREE=$(CURDIR)/$(TREE) $(PYTEST) tests/rules

.PHONY: test-python
test-python: $(wheel_stamp)
	$(PYTEST) tests/python

# What nvcc makes of the CUDA kernels, where there is nvcc; the kernels themselves, where there is a
# GPU. Both say so where they are skipped (77 is "skipped").
.PHONY: test-kernels
test-kernels: $(dev_stamp)
	$(BIN)/python tools/kernel_budget.py
	tools/device_check.sh || test $$? -eq 77

SOAK_CALLS ?= 10000

.PHONY: soak
soak: build-cpp
	$(TREE)/tests/cpp/soak $(SOAK_CALLS) 2 inproc shm tcp two_hosts
	AGOQ_SOAK_CALLS=$(SOAK_CALLS) $(PYTEST) tests/python/test_soak.py

.PHONY: soak-sanitizers
soak-sanitizers: soak-asan soak-tsan

.PHONY: test-sanitizers
test-sanitizers: test-asan test-tsan

define sanitized
.PHONY: tree-$(1) test-$(1) soak-$(1)
tree-$(1): $(dev_stamp)
	tools/bootstrap.sh
	cmake -S . -B build/$(1) -DAGOQ_BUILD_TESTS=ON "-DAGOQ_SANITIZE=$(2)" \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 --log-level=WARNING

test-$(1): tree-$(1)
	cmake --build build/$(1)
	$(3) $(CTEST) --test-dir build/$(1)

soak-$(1): tree-$(1)
	cmake --build build/$(1) --target soak
	$(3) build/$(1)/tests/cpp/soak $(SOAK_CALLS) 3 inproc shm tcp
endef
$(eval $(call sanitized,asan,address;undefined,UBSAN_OPTIONS=print_stacktrace=1))
$(eval $(call sanitized,tsan,thread,TSAN_OPTIONS=halt_on_error=1))

# --- lint ------------------------------------------------------------------------------------

.PHONY: lint
lint: $(wheel_stamp)
	$(BIN)/clang-format --dry-run -Werror $(cpp_files)
	$(BIN)/ruff check $(python_dirs)
	$(BIN)/ruff format --check $(python_dirs)
	$(BIN)/mypy
	cmake -S . -B $(TREE) -DAGOQ_MPI=AUTO --log-level=WARNING
	sed -n 's|^ *"file": "\(.*/libagoqcomm/src/.*\.cc\)",*$$|\1|p' $(TREE)/compile_commands.json | \
	  sort -u | xargs -n 4 -P $(JOBS) $(BIN)/clang-tidy --quiet -p $(TREE)

.PHONY: format
format: $(dev_stamp)
	$(BIN)/clang-format -i $(cpp_files)
	$(BIN)/ruff check --fix-only $(python_dirs)
	$(BIN)/ruff format $(python_dirs)

# --- bench -----------------------------------------------------------------------------------

# The quantized collectives are measured up to sizes at which bandwidth decides, and beside the exact
# path of the same library; the others by the OSU programs' own default sizes.
quantized_benches := osu_allreduce osu_reduce_scatter osu_allgather
other_benches := $(filter-out $(quantized_benches),$(notdir $(basename $(wildcard bench/osu_*.py))))
run_bench = $(BIN)/torchrun --standalone --nproc-per-node 2 bench/$@.py -c \
              --json bench/results/$@.json --plot docs/figures/$@.png

.PHONY: bench codec_bench codec_python_bench activation_bench osu_cpp $(quantized_benches) \
  $(other_benches)
bench: codec_bench codec_python_bench activation_bench osu_cpp $(quantized_benches) $(other_benches)

codec_bench: build-cpp
	mkdir -p bench/results
	$(TREE)/bench/cpp/codec_bench --out bench/results/codec.json
	for format in fp4 e2m3 int4 int6; do \
	  $(TREE)/bench/cpp/codec_bench --format $$format --out bench/results/codec_$$format.json \
	    || exit 1; \
	done

# Beside libraries that only these need.
bench_stamp := $(VENV)/stamp-requirements-bench

$(bench_stamp): requirements-bench.txt $(torch_stamp)
	$(BIN)/pip install --quiet -r requirements-bench.txt
	touch $@

codec_python_bench activation_bench: %_bench: $(wheel_stamp) $(bench_stamp)
	mkdir -p bench/results
	$(PYTEST) bench/test_$(subst _python,,$*)_benchmark.py \
	  --benchmark-json bench/results/$*.json

# The core's own programs print what OMB prints, and so that is what is kept of them.
osu_cpp: build-cpp
	mkdir -p bench/results
	for transport in tcp shm; do \
	  printf '# --transport %s\n' $$transport; \
	  for program in $(TREE)/bench/cpp/osu_*; do \
	    $$program --launch 2 --transport $$transport -c -f || exit 1; \
	  done; \
	done >bench/results/osu_cpp.txt

$(quantized_benches): $(wheel_stamp)
	mkdir -p bench/results
	$(run_bench) -m 4:67108864 --vs gloo,exact,agoq

$(other_benches): $(wheel_stamp)
	mkdir -p bench/results
	$(run_bench) --vs gloo,agoq

# Hosts are network namespaces of this machine, see docs/benchmarks.md; what the others need (2 GB
# from PyPI) is installed once. The cost model is then fitted to what was measured.
peers_stamp := build/peers/stamp

$(peers_stamp): $(wheel_stamp)
	cd bench && $(BIN)/python -m linklab peers
	touch $@

.PHONY: bench-links plan-validation scaling
bench-links: $(wheel_stamp) $(peers_stamp)
	cd bench && $(BIN)/python -m linklab table; echo $$? >../build/linklab-status
	{ echo '![Times faster, by rate of the links](figures/linklab.png)'; echo; \
	  cat bench/results/linklab.md; } | tools/fill_page.py docs/benchmarks.md links
	$(MAKE) plan-validation
	exit $$(cat build/linklab-status)

plan := $(BIN)/python -m agoq_comm.plan

plan-validation: $(wheel_stamp)
	$(plan) fit bench/results/linklab.json >bench/results/plan.json
	$(plan) validate bench/results/linklab.json >bench/results/plan.md
	tools/fill_page.py docs/scaling.md validation <bench/results/plan.md

scaling: $(wheel_stamp)
	$(plan) scaling --out docs/figures/scaling_cpu.png | \
	  tools/fill_page.py docs/scaling.md cpu
	$(plan) scaling --compute 100 --within 300GB --out docs/figures/scaling_gpu.png | \
	  tools/fill_page.py docs/scaling.md gpu

# --- clean -----------------------------------------------------------------------------------

.PHONY: clean
clean:
	rm -rf build dist demo-output $(VENV) .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

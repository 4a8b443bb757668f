# The targets that people and CI call; a bare make lists them.

GO      ?= go
MODULE  := github.com/lockstep-ml/lockstep
# Packages whose bits must not depend on how the compiler may contract, those
# of them that exist.
NUMERIC := $(foreach d,kernels core/num core/model core/optim contracts/det,$(if $(wildcard $(d)),./$(d)/...))
# The modules of the repository: this one, the generator of the kernels, the example
# for authors of other trainers, and the manifest for Kubernetes with its test.
MODULES := $(sort $(dir $(shell find . -name go.mod)))

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without a C library threads take no address space beyond Go's own, which ulimit -v
# counts.
.PHONY: build
build: ## build bin/verify and bin/train
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/verify ./cmd/train

# The header and the empty library stand for NVIDIA's, so that gorgonia.org/cu builds
# without its toolkit; the paths are absolute, as the compiler works in the module cache.
CUDA := CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations -I$(CURDIR)/gpu/internal/drv/include" \
	CGO_LDFLAGS="-L$(CURDIR)/gpu/internal/drv/lib" $(GO)
.PHONY: c-compiler
c-compiler:
	@command -v $$($(GO) env CC) > /dev/null || { echo "there is no $$($(GO) env CC): on Debian apt-get install gcc libc6-dev"; exit 1; }

.PHONY: build-cuda
build-cuda: c-compiler ## build bin/verify and bin/train with --backend cuda (needs a C compiler; neither a GPU nor NVIDIA's toolkit)
	$(CUDA) build -tags cuda -o bin/ ./cmd/verify ./cmd/train

# A simulated GPU, which interprets the PTX that ships.
SIM       := LOCKSTEP_CUDA_SIM=$(CURDIR)/bin/libcuda-sim.so
SIMULATED := LOCKSTEP_CUDA=sim $(SIM)
.PHONY: test-cuda-smoke
test-cuda-smoke: build-cuda build-sim ## a few cases of every kernel, and a step on two simulated GPUs: the bits of the CPU (under a minute after the build)
	$(SIMULATED) $(CUDA) test -tags cuda -short -count=1 ./kernels/cuda
	$(SIMULATED) $(CUDA) test -tags cuda -short -count=1 ./cmd/train -run 'TestGolden$$'

# What CI and a fresh clone lack is installed, on Debian and Ubuntu.
.PHONY: compilers
compilers:
	@.ci/need gcc g++ clang-19

# All of it on simulated GPUs, or, with SIMULATED= behind it, on those of the machine.
.PHONY: test-cuda
test-cuda: compilers test-gpu test-sim test-cuda-smoke ## these three, and: the PTX is what clang makes, every kernel, a list of plans and launches, two contracts (installs clang-19 and g++; minutes)
	$(GO) run ./internal/ptx -check
	rm -rf out/planted && mkdir -p out/planted && sh gpu/sim/testdata/ptx.sh out/planted && for f in out/planted/*; do cmp $$f gpu/sim/testdata/$${f##*/} || exit 1; done
	$(SIMULATED) $(CUDA) test -tags cuda -count=1 -timeout 30m ./kernels/cuda
	$(SIMULATED) $(CUDA) test -tags cuda -count=1 -timeout 30m ./cmd/train -run 'TestGolden$$' -v
	$(SIM) $(CUDA) test -tags cuda -count=1 ./cmd/train -run 'TestSimulated|TestRequired' -v
	$(SIM) $(SIMULATED) $(CUDA) test -tags cuda -count=1 -timeout 30m ./cmd/verify -v -contracts C-DDP-001,C-COMM-001 \
		-run 'OnDevices$$|NotThere$$|TestSimulated|TestDevice'

.PHONY: verify-sim
verify-sim: build-cuda build-sim ## all contracts on two simulated GPUs (needs g++; many minutes)
	$(SIMULATED) bin/verify --backend cuda

.PHONY: bench-cuda
bench-cuda: c-compiler build-sim ## how often a step waits for a GPU and launches something, and kernels timed, on a simulated one (SIMULATED= behind it: on those of the machine)
	$(SIMULATED) $(CUDA) test -tags cuda -count=1 ./kernels/cuda -run 'TestWaits|TestProductsTogether' -v
	$(SIMULATED) $(CUDA) test -tags cuda -run '^$$' -bench Kernels -short ./kernels/cuda

# On the devices that LOCKSTEP_CUDA chooses: without it real ones.
.PHONY: test-cuda-sweep
test-cuda-sweep: c-compiler ## exp and log of all 2^32 inputs on a GPU (needs one; with LOCKSTEP_CUDA=sim and make build-sim it is a sample on a simulated one)
	$(SIM) $(CUDA) test -tags cuda -count=1 -timeout 1h ./kernels/cuda -run TestSweep -v

# Without clang-19 the PTX that is here is used, and go test says whether it is of these
# sources.
.PHONY: ptx
ptx: ## make the PTX of kernels/cuda anew (Debian: apt-get install clang-19)
	$(GO) generate -tags ptx ./kernels/cuda

# NVIDIA's compilers prove what clang made; nothing of them is kept or shipped. nvcc wants
# a host compiler.
PTX_TOOLS := out/ptx
CUDA12    := nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79
CUDA13    := nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-runtime==13.5.37 nvidia-cuda-cccl==13.3.5.0.6

# One that was fetched in part, or in other versions, is fetched anew; a second time where
# the index does not answer.
toolkit = test "$$(cat $(PTX_TOOLS)/$(1)/of 2> /dev/null)" = "$(2)" || { rm -rf $(PTX_TOOLS)/$(1) && python3 -m venv $(PTX_TOOLS)/$(1) && \
	{ $(call fetch,$(1),$(2)) || $(call fetch,$(1),$(2)); } && echo "$(2)" > $(PTX_TOOLS)/$(1)/of; }
fetch   = timeout 300 $(PTX_TOOLS)/$(1)/bin/pip install -q --disable-pip-version-check --only-binary :all: --timeout 30 --retries 3 $(2)

.PHONY: test-ptx
test-ptx: compilers build-sim ## NVIDIA's assemblers take the PTX, nvcc's gives the same bits, cuda.h agrees (installs clang-19, g++ and python3-venv; fetches 500 MB)
	@.ci/need python3-venv
	$(GO) vet -tags ptx ./internal/ptx
	$(GO) test -tags ptx -count=1 ./internal/ptx
	$(GO) run ./internal/ptx -check
	mkdir -p $(PTX_TOOLS)/nvcc
	$(call toolkit,12,$(CUDA12))
	$(call toolkit,13,$(CUDA13))
	$(GO) run ./internal/ptx -assemble $(PTX_TOOLS)/12,$(PTX_TOOLS)/13
	$(GO) run ./internal/ptx -header $(PTX_TOOLS)/12
	$(GO) run ./internal/ptx -header $(PTX_TOOLS)/13
	$(GO) run ./internal/ptx -nvcc $(PTX_TOOLS)/13 $(PTX_TOOLS)/nvcc
	$(SIMULATED) $(CUDA) test -tags cuda -count=1 -timeout 30m ./kernels/cuda -run 'TestConformance|TestEachPart' -ptx $(CURDIR)/$(PTX_TOOLS)/nvcc

.PHONY: test-gpu
test-gpu: c-compiler ## vet and test what reaches GPUs, on drivers that are made for it (needs a C compiler)
	$(CUDA) vet -tags cuda ./gpu/... ./kernels/cuda ./cmd/...
	$(CUDA) tool staticcheck -tags cuda ./gpu/... ./kernels/cuda ./cmd/...
	$(CUDA) test -tags cuda -count=1 ./gpu/... ./cmd/internal/cli
	$(CUDA) test -tags cuda -count=1 -race ./gpu/...

.PHONY: verify
verify: build ## check this machine: run all contracts
	bin/verify

.PHONY: test
test: ## run all tests
	$(GO) test ./...

.PHONY: campaign
campaign: ## 2,000 random correct runs without an alarm, 1,000 random bit flips that are seen or change nothing (20 minutes)
	$(GO) test -count=1 -timeout 2h ./property/combinations -run 'TestCorrectRunsAreHeld|TestFlippedBitsAreSeen' -v -campaign

.PHONY: campaign-plans
campaign-plans: ## every variant of both fixtures under every plan of the table: one answer each (many minutes)
	$(GO) test -timeout 2h ./property/combinations -run 'TestOneAnswer|TestVariants' -v -campaign

# Of one package after the other, as the native fuzzer runs one target at a time.
FUZZTIME ?= 30s
FUZZ     := core/trace:FuzzRead contracts:FuzzHistory core/checkpoint:FuzzHeader core/checkpoint:FuzzManifest cmd/train:FuzzConfig \
	core/comm/wire:FuzzHello core/comm/engine:FuzzFrame core/comm/engine:FuzzNotes core/comm/shm:FuzzSegment core/launch/procs:FuzzSaid
.PHONY: fuzz
fuzz: ## feed hostile histories, checkpoints, manifests, configurations, frames, shared memory and notes to their readers, each for 30 s
	@for t in $(FUZZ); do echo "fuzz $$t"; \
	$(GO) test ./$${t%%:*} -run '^$$' -fuzz "^$${t##*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; done

.PHONY: fuzz-wire
fuzz-wire: ## feed hostile greetings, frames and shared memory to who listens, each for 30 s
	@$(MAKE) --no-print-directory fuzz FUZZ="core/comm/wire:FuzzHello core/comm/engine:FuzzFrame core/comm/shm:FuzzSegment"

# Of agents that launchers start.
CONTRACTS ?= all
.PHONY: test-mpi
test-mpi: build ## judge all contracts in 4 agents that mpirun starts (needs openmpi-bin; CONTRACTS=C-DDP-001,C-TP-001 is short)
	mpirun --allow-run-as-root --oversubscribe -n 4 bin/verify --expect-agents 4 --contract $(CONTRACTS) --deadline 60s

# Against the MPI of mpicc. Where UCX or libfabric are part of that, so is their fabric.
MPI     := CGO_ENABLED=1 CGO_CFLAGS="$$(mpicc --showme:compile)" CGO_LDFLAGS="$$(mpicc --showme:link)" $(GO)
MPIRUN  := mpirun --allow-run-as-root --oversubscribe
.PHONY: mpicc
mpicc:
	@echo '#include <mpi.h>' | mpicc -fsyntax-only -x c - 2> /dev/null || { echo "no mpicc, or no mpi.h: on Debian they are in openmpi-bin and libopenmpi-dev"; exit 1; }

.PHONY: build-mpi
build-mpi: mpicc ## build bin/mpi/verify and bin/mpi/train, which have --transport mpi (needs openmpi-bin and libopenmpi-dev)
	$(MPI) build -tags mpi -o bin/mpi/ ./cmd/verify ./cmd/train

# The suite is one process, whose messages to itself go through the others.
.PHONY: test-mpi-transport
test-mpi-transport: build-mpi ## conformance, all contracts and lost agents where ranks reach each other by MPI (needs openmpi-bin and libopenmpi-dev; CONTRACTS as above)
	$(MPI) vet -tags mpi ./core/comm/mpi ./cmd/internal/cli ./internal/outage
	$(MPI) tool staticcheck -tags mpi ./core/comm/mpi ./cmd/internal/cli ./internal/outage
	$(MPI) test -c -tags mpi -o bin/mpi/suite ./core/comm/mpi
	mpicc -O2 -o bin/mpi/mirror core/comm/mpi/testdata/mirror.c
	$(MPIRUN) -n 1 bin/mpi/suite -test.v
	$(MPIRUN) -n 1 bin/mpi/suite -test.v : -n 2 bin/mpi/mirror
	$(MPIRUN) --mca btl tcp,self -n 1 bin/mpi/suite -test.v : -n 3 bin/mpi/mirror
	$(MPIRUN) -n 4 bin/mpi/verify --expect-agents 4 --transport mpi --contract $(CONTRACTS) --deadline 60s
	$(MPI) test -count=1 -timeout 10m -tags mpi ./internal/outage -run TestMPI -v

# The seed of the moments is printed; -args -seed N has them again.
MOMENTS ?= 100
.PHONY: test-kill
test-kill: ## kill -9 each process of a run at 100 random moments: all others end, nothing stays behind, the next run goes on (8 minutes)
	$(GO) test -count=1 -timeout 1h ./internal/outage -run TestKilledAtRandom -v -moments $(MOMENTS)

VISITS ?= 10000
.PHONY: test-hostile
test-hostile: ## so many connections of strangers, malformed or without the token, to every port of a run: nothing grows, and it goes on (a minute)
	$(GO) test -count=1 -timeout 20m ./internal/outage -run TestStrangers -v -visits $(VISITS)

# It starts munged, slurmctld and two slurmd with ports, a key and directories of their
# own, tracks processes without cgroups, and stops what it started.
.PHONY: test-slurm
test-slurm: ## contracts in steps of a Slurm that it starts, killed and cancelled (needs root, and slurmctld, slurmd, slurm-client and munge)
	$(GO) test -count=1 -timeout 30m -tags slurm ./internal/outage -run TestSlurm -v -contracts $(CONTRACTS)

# Their interfaces are in namespaces of their own, which are gone when it ends.
.PHONY: test-netns
test-netns: ## hosts that are network namespaces judge together, and are unplugged in the middle of a step (needs root, iproute2 and util-linux)
	$(GO) test -count=1 -timeout 30m -tags netns ./internal/outage -run TestNetns -v

.PHONY: test-full
test-full: ## disks that run full under what a run writes end it with 4, and the file is named (needs root, to mount some)
	$(GO) test -count=1 -timeout 10m -tags root ./internal/outage -run TestFullDisk -v

.PHONY: test-soak
test-soak: build ## 16 processes that reduce 2,000 times, then all contracts in 64 agents, and 64 ranks in as many processes (minutes)
	$(GO) test -count=1 -timeout 1h ./core/launch/procs -run TestSoak -v -soak-agents 16 -soak-times 1000
	bin/train --launch procs --plan dp=8,tp=4,pp=2 --steps 3 --fingerprint
	bin/verify --launch procs --agents 64

.PHONY: build-sim
build-sim: ## build bin/libcuda-sim.so, the simulated CUDA driver (needs g++; Debian: apt-get install g++)
	@$(MAKE) --no-print-directory -j $$(getconf _NPROCESSORS_ONLN) -C gpu/sim OUT=$(CURDIR)/bin/libcuda-sim.so OBJ=$(CURDIR)/out/sim

# The planted races between blocks are found for sure where one thread executes them.
.PHONY: test-sim
test-sim: build-sim ## every instruction of the simulated GPU against its definition, every planted bug found (needs a C compiler)
	CGO_ENABLED=1 $(GO) vet -tags sim ./gpu/sim/...
	LOCKSTEP_SIM_THREADS=1 CGO_ENABLED=1 $(GO) test -count=1 -timeout 15m -tags sim ./gpu/sim/...

.PHONY: bench-sim
bench-sim: build-sim ## time products of nano on the simulated GPU, with and without checks, for each instruction set
	@for c in all none; do for i in avx512 avx2 generic; do echo "checks $$c, at most $$i"; \
	LOCKSTEP_SIM_CHECKS=$$c LOCKSTEP_SIM_ISA=$$i CGO_ENABLED=1 $(GO) test -tags sim -run '^$$' -bench . -benchtime 20x ./gpu/sim | grep GFLOP || exit 1; done; done

.PHONY: check
check: check-format check-vet check-tidy check-generate check-deps check-size check-fused check-numeric check-isa check-race ## run every check of the sources; each also runs alone

.PHONY: check-format
check-format: ## gofmt has nothing to change
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "run make fmt:"; echo "$$files"; exit 1; fi

.PHONY: check-vet
check-vet: ## go vet and staticcheck have nothing to say
	$(GO) vet ./...
	$(GO) vet -tags slurm,netns,root ./internal/outage
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags slurm,netns,root ./internal/outage

.PHONY: check-tidy
check-tidy: ## go.mod and go.sum of every module are what go mod tidy makes
	@for m in $(MODULES); do echo "go mod tidy -diff ($$m)"; (cd $$m && $(GO) mod tidy -diff) || exit 1; done

.PHONY: check-generate
check-generate: ## generated files are what go generate makes
	@before=$$(git status --porcelain && git diff) && \
	$(GO) generate ./... && \
	after=$$(git status --porcelain && git diff) && \
	if [ "$$before" != "$$after" ]; then echo "go generate ./... changes:"; git status --short; exit 1; fi

.PHONY: check-deps
check-deps: ## imports point downwards, packages are documented, forbidden calls are absent
	$(GO) test -count=1 ./internal/deptest

.PHONY: check-size
check-size: ## core keeps its budget of lines
	$(GO) run ./internal/corelines

.PHONY: check-fused
check-fused: ## only the fma helpers may contain fused instructions, on amd64 (v3) and arm64
	$(GO) run ./internal/fused -arch amd64
	$(GO) run ./internal/fused -arch arm64

# A processor below the v3 level cannot run these; then they fail by saying so.
.PHONY: check-numeric
check-numeric: ## the numeric tests pass when the compiler may fuse (GOAMD64=v3)
	GOAMD64=v3 $(GO) test $(NUMERIC)

.PHONY: check-isa
check-isa: ## nano and odd give their golden fingerprints on every instruction set, at GOAMD64=v1 and v3, on one thread and two
	$(GO) run ./internal/portable

.PHONY: check-arm64
check-arm64: ## the same for arm64, elsewhere under qemu-user (Debian: apt-get install qemu-user)
	$(GO) run ./internal/portable -arch arm64

.PHONY: check-authors
check-authors: ## the example for authors of other trainers builds and passes as a module of its own
	$(GO) test -count=1 ./property/authors

.PHONY: check-kubernetes
check-kubernetes: ## the manifest in examples/launchers is one of Kubernetes, and its agents find each other (a module of its own, which fetches 20 MB)
	cd examples/launchers/kubernetes && $(GO) vet ./... && $(GO) test -count=1 ./...

.PHONY: check-scripts
check-scripts: ## shellcheck has nothing to say about the scripts (Debian: apt-get install shellcheck)
	shellcheck .ci/run .ci/need examples/launchers/*.sh examples/launchers/*.sbatch

# Kernels in assembly are not instrumented: races on tensors are found by the
# tests of core, which compute in plain Go. Tests of numbers take part of their
# cases (internal/race).
.PHONY: check-race
check-race: ## the race detector finds nothing (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -run 'TestConformance/[^/]*/(SumSquares|Hash|HashChanged)/again|RMSNormGradThreads|ThreadIs|NoThread' ./kernels/cpu
	CGO_ENABLED=1 $(GO) test -race -timeout 30m ./core/... ./contracts/...

.PHONY: golden-fingerprints
golden-fingerprints: ## record the fingerprints and learning rates of training, and the results of kernels, anew, with plain Go (many minutes)
	$(GO) test -count=1 -timeout 2h ./golden -run 'Test(Fingerprints|Large|Schedules|Kernels)$$' -update

.PHONY: golden-checkpoint
golden-checkpoint: ## store the golden checkpoint anew
	$(GO) test -count=1 ./golden -run 'TestCheckpoint$$' -update

.PHONY: golden-reference
golden-reference: ## recompute golden/reference with PyTorch (needs python3 with torch)
	python3 golden/reference/make_reference.py

PYTHON ?= python3

.PHONY: bench
bench: ## time kernels and training steps, and what the canonical order and verification cost (many minutes)
	$(GO) test -run '^$$' -bench . -benchtime 200ms ./kernels/cpu
	$(GO) test -run '^$$' -bench . -benchtime 5x ./benchmarks/step
	$(GO) run ./benchmarks/costs

.PHONY: bench-peers
bench-peers: ## time them in turn with OpenBLAS, PyTorch and copies (needs libopenblas-dev, and torch in PYTHON)
	$(GO) run ./benchmarks/peers -peers openblas,torch,copy,training -python $(PYTHON)

.PHONY: bench-collectives
bench-collectives: ## time all-reduce in turn with Open MPI and Gloo (needs openmpi-bin, libopenmpi-dev and gcc, and torch in PYTHON; minutes)
	$(GO) run ./benchmarks/collectives -python $(PYTHON)

.PHONY: tidy
tidy: ## run go mod tidy in every module
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy) || exit 1; done

.PHONY: fmt
fmt: ## format the sources
	gofmt -w .

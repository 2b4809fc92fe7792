# Every target sets up what it needs: a fresh machine with Python >= 3.11, make and git is enough.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.ready-dev
STORIES := $(VENV)/.ready-stories
# Tests wait more than they compute, so there are more processes than cores. A file stays in one process, for what
# its tests share. Stories start first.
PYTEST := $(BIN)/pytest
IN_PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder --durations 10
# A long suite prints its minutes. It takes its length by FLAGS, ends by itself, and has no ## for `make help`.
TIMED = @hack/timed "make $@"
export OMP_NUM_THREADS ?= 1
# Where it is set, each process compiles all modules anew: 2 CPU seconds for each of the hundreds that tests start.
export PYTHONDONTWRITEBYTECODE :=
export KUBE
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

.PHONY: help demo test stories pictures troubles di-engine test-kube e2e grace tensorflow-on-node conformance dropin incumbents converted laws damages check generate fix docs recipes mutants fuzz bench-training bench-scaling bench-cluster bench-kube bench-scale bench-services bench-shared alerts chaos chaos-queue queues chaos-training life drains shardings loops-divided loops-titan soak clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready-%: pyproject.toml hack/setup
	@hack/setup "$(PYTHON)" "$(VENV)" $*

demo: $(VENV)/.ready-demo ## a whole job on this machine: apply, train, kill, scale, suspend, succeed (about 2 minutes; writes report.html; TORCH_INDEX=an index of CPU wheels spares 4 GB)
	@$(BIN)/elasticjob demo --report report.html

test: $(DEV) ## all tests but stories, and one story of a whole job (about 3 minutes; kubectl is used where it is on PATH)
	$(PYTEST) $(IN_PARALLEL) -m "not story" --budget 360:200

stories: $(STORIES) di-engine $(VENV)/axe.min.js ## whole programs and jobs together: demo, walkthrough, kills, soak, Brain, torchrun, other libraries (5 minutes)
	$(PYTEST) $(IN_PARALLEL) -m story --budget 500:300

$(VENV)/axe.min.js: $(DEV) # finds faults of accessibility, for the story of the pages
	cd $(VENV) && npm pack --silent axe-core@4.10.3 >/dev/null && tar xOzf axe-core-4.10.3.tgz package/axe.min.js >axe.new
	echo "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb  $(VENV)/axe.new" | sha256sum --check --quiet && mv $(VENV)/axe.new $@

pictures: $(DEV) # pictures of the dashboard and of a report, in four widths, light and dark, in pictures/ (two minutes)
	$(TIMED) $(BIN)/python -m tests.page.pictures $(FLAGS)

di-engine: $(DEV) # the stock DI-engine, for the stories of DIJobs
	@hack/di-engine "$(VENV)"

test-kube: $(DEV) ## the integration tests whose answers may differ, on a real control plane (hack/kube-binaries builds it; ALL=1: all of them; KUBE=1.37: that server)
	@hack/kube-binaries control-plane kwok kubectl kueue
	$(TIMED) $(PYTEST) $(IN_PARALLEL) --kube real -m "$(if $(ALL),integration,differs) or plane" $(FLAGS)

e2e: $(STORIES) di-engine ## whole jobs and a DIJob with the operator in the cluster, on a real node with containers (as root; or ON=kind)
	@on=$$($(BIN)/python -m lab.clusters.node.chosen $(ON)) || exit 1; \
	[ "$$on" = kind ] || hack/kube-binaries control-plane node helm kueue || exit 1; \
	$(PYTEST) tests/node --node --on "$$on" -m node

grace: $(STORIES) # a plain script's saves of half a minute, in each way to leave, on a real node (as root; a quarter of an hour)
	@hack/kube-binaries control-plane node helm kueue
	$(TIMED) $(PYTEST) tests/node --node -m grace -s $(FLAGS)

tensorflow-on-node: $(STORIES) # TensorFlow's servers on a real node: 3 to 4, one killed, no record lost (as root; ten minutes)
	@hack/kube-binaries control-plane node helm kueue
	$(TIMED) $(PYTEST) tests/node --node -m tensorflow -s $(FLAGS)

conformance: $(DEV) ## the same requests to devcluster and to the real server; writes docs/devcluster-conformance.md
	@hack/kube-binaries control-plane
	$(TIMED) $(BIN)/python -m tests.conformance

dropin: $(DEV) # a hundred stories with python, torchrun and elasticjob run: all that can be observed, compared (20 minutes; FLAGS="--only end,SIG")
	$(TIMED) $(BIN)/python -m lab.dropin $(FLAGS)

incumbents: $(DEV) # the same stories with a batch/v1 Job, Kueue's own Job or a Deployment with an HPA, and with ours (45 minutes; FLAGS="--oracle batch --only evict")
	@hack/kube-binaries control-plane kwok node kueue
	$(TIMED) $(BIN)/python -m lab.incumbents $(FLAGS)

converted: $(DEV) # each manifest of tests/cli/convert as a converted job on devcluster: ranks, arguments, mounts, or what the report says (5 minutes)
	$(TIMED) $(BIN)/python -m lab.converted $(FLAGS)

laws: $(STORIES) # each promise for each way to train, in a table; JAX beside optax's and flax's own (half an hour; FLAGS="--only jax --law once" OPTIMIZERS="adam sgd")
	$(TIMED) $(BIN)/python -m tests.trainer.loops $(FLAGS)
	$(TIMED) $(BIN)/python tests/trainer/jax/libraries.py $(OPTIMIZERS)

damages: $(DEV) # 10,000 damaged checkpoints: each loads whole, as it was saved, or is refused (20 minutes; FLAGS="--draws 500 --seed 3")
	$(TIMED) $(BIN)/python -m lab.damages $(FLAGS)
loops-divided: $(STORIES) # FSDP2 in Hugging Face's Trainer, accelerate and Lightning: killed at each micro-batch, ours beside their own checkpoints (10 minutes; FLAGS="lightning 4")
	$(TIMED) $(BIN)/python -m lab.scripts.loops.divided $(FLAGS)

check: $(DEV) ## lint, types, arrows, generated files: what pre-commit and CI run
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m hack.generate --check
	$(BIN)/python -m lab.recipes --check

generate: $(DEV) ## write what is generated, and tell what CRDs change for stored objects (FLAGS=--allow-breaking)
	$(BIN)/python -m hack.generate $(FLAGS)

fix: $(DEV) # format, wrap the prose of pages, and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m hack.prose

docs: $(DEV) # the docs site in site/, from docs/; open site/index.html, or serve it: .venv/bin/mkdocs serve
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

recipes: $(DEV) # the recipes of CONTRIBUTING, followed in a worktree, rightly and with a mistake that their tests see (5 minutes; FLAGS=scaling-algorithm)
	$(TIMED) $(BIN)/python -m lab.recipes $(FLAGS)

mutants: $(DEV) # whether the tests notice 200 small faults put into the code one at a time (half an hour; FLAGS=--help)
	$(TIMED) $(BIN)/python -m hack.mutants $(FLAGS)

bench-training: $(DEV) # recovery, step cost and master load; torchrun and four peers beside us (60 minutes; FLAGS=--help)
	@hack/peers "$(VENV)"
	$(TIMED) $(BIN)/python -m benchmarks.training $(FLAGS)

bench-scaling: $(DEV) # sizes and memory decided by us, by fixed settings and by DLRover's rules, simulated (5 minutes)
	$(TIMED) $(BIN)/python -m benchmarks.simulator $(FLAGS)

bench-cluster: $(DEV) # planners of a shared cluster beside published results, simulated, with plots in bench-cluster/ (15 minutes)
	$(TIMED) $(BIN)/python -m benchmarks.cluster $(or $(FLAGS),everything)

bench-kube: $(DEV) # cache, watch and reconcile figures on a real API server, other Python clients beside us
	@hack/kube-binaries control-plane
	@hack/setup "$(PYTHON)" "$(VENV)" bench
	$(TIMED) $(BIN)/python -m benchmarks.clients.framework $(FLAGS)

bench-scale: $(DEV) # 100 to 1,000 jobs of 4 pods on pretended nodes through a real control plane, Jobs and bare pods beside us (LARGE=1: a restart amid 20,000 pods, one job of 2,000; FLAGS=--help)
	@hack/kube-binaries control-plane kwok
	$(TIMED) $(BIN)/python -m benchmarks.services.$(if $(LARGE),large,scale) $(FLAGS)

bench-services: $(DEV) # thousands of agents at one master, Brain with a long history, di-server with 1,000 coordinators (half an hour)
	for load in rendezvous beats calls; do hack/timed "make $@ $$load" $(BIN)/python -m benchmarks.services.agents $$load $(FLAGS) || exit 1; done
	$(TIMED) $(BIN)/python -m benchmarks.services.brain $(FLAGS)
	$(TIMED) $(BIN)/python -m benchmarks.services.di_server $(FLAGS)

bench-shared: $(DEV) # jobs in queues of the real Kueue: pods killed, nodes drained, resizes, quota taken back; Kubeflow Trainer beside us (20 minutes; TRAINING=1: they train, on a real node, as root, 8 minutes; FLAGS=--help)
	@hack/kube-binaries control-plane kwok kueue peers-of-queue $(if $(TRAINING),node)
	$(TIMED) $(BIN)/python -m benchmarks.shared $(if $(TRAINING),--training) $(FLAGS)

loops-titan: $(DEV) # torchtitan's Trainer killed at each micro-batch, and its own checkpointer; Megatron-core on other layouts, and DeepSpeed (five minutes)
	@hack/peers "$(VENV)" 'torchtitan==0.3.0 megatron-core==0.16.1 deepspeed==0.19.8'
	$(TIMED) $(VENV)/peers/torchtitan/bin/python -m lab.scripts.trainer.others

chaos: $(DEV) # kill -9 operator, master, agents at random moments, 20 rounds
	$(TIMED) $(BIN)/python -m lab chaos --jobs digits $(FLAGS)

chaos-queue: $(DEV) # jobs in queues of the real Kueue, 50 interleavings of kills, resizes and lost machines: no pod without quota (15 minutes; FLAGS=--help)
	@hack/kube-binaries control-plane kwok kueue
	$(TIMED) $(BIN)/python -m lab chaos --jobs queued $(FLAGS)

simulate: $(DEV) # 2,000 histories of the whole control plane in virtual time (five minutes; FLAGS="--seed 7 --histories 100", FLAGS=--mutants for two hours)
	$(TIMED) $(BIN)/python -m lab simulate $(FLAGS)

simulate-laws: $(DEV) # each write of 40 histories crashed, refused or late, each read old, and each field of each kind edited: the same state at the end (half an hour)
	$(TIMED) $(BIN)/python -m lab simulate --crashes
	$(TIMED) $(BIN)/python -m lab simulate --edits

judges: $(DEV) # 200 histories of the virtual world played on devcluster, and 30 on a real control plane: the same objects (40 minutes each at most; FLAGS="--histories 20")
	$(TIMED) $(BIN)/python -m lab simulate --judge devcluster $(or $(FLAGS),--histories 200)
	$(TIMED) $(BIN)/python -m lab simulate --judge real $(or $(FLAGS),--histories 30)

troubles: $(DEV) # jobs and clusters broken in 50 ways on a real control plane: doctor names the cause, its next step mends it (15 minutes; FLAGS="--only claim --on devcluster", FLAGS=--record)
	@hack/kube-binaries control-plane kwok kubectl kueue
	$(TIMED) $(BIN)/python -m lab.diagnoses $(FLAGS)

alerts: $(DEV) # a day of ordinary life and broken ones, played in virtual time: no alert is false, none is late (six minutes; FLAGS="ElasticJobHangs")
	$(TIMED) $(BIN)/python -m tests.monitoring.lives $(FLAGS)

queues: $(DEV) # a thousand stories of jobs in queues, in virtual time (a quarter of an hour; FLAGS="--seed 7 --count 100")
	$(TIMED) $(BIN)/python -m lab queues $(FLAGS)

chaos-training: $(DEV) # 300 kills in one training and 200 around a store, each record counts once; 60 around saves; 10 stories whose goodput adds up (half an hour)
	$(TIMED) $(BIN)/python -m lab chaos --jobs lineage,store,sharded,account $(FLAGS)

shardings: $(DEV) # 500 random meshes, models and kills: what is loaded is what was saved, or is refused before the first step (an hour; FLAGS=--help)
	$(TIMED) $(BIN)/python -m lab.shardings $(FLAGS)

life: $(STORIES) # twelve kinds of trainings in ordinary trouble (half an hour; FLAGS="--minutes 5 --seed 3")
	$(TIMED) $(BIN)/python -m lab chaos --jobs life $(FLAGS)

drains: $(DEV) # 100 random drains of one training: no step is lost; then agents lost beside a spare (half an hour; FLAGS="--times 10")
	$(TIMED) $(BIN)/python -m lab chaos --jobs drained,spare $(FLAGS)

soak: $(DEV) # ten minutes of random faults between the operator and a real API server, 200 jobs coming and going
	@hack/kube-binaries control-plane
	$(TIMED) $(BIN)/python -m lab chaos --jobs crowd $(FLAGS)

fuzz: $(DEV) # 100,000 random requests to each port of ours, about a quarter of an hour (FLAGS="--requests 5000 --seed 2"), then a hostile tenant (MINUTES=20)
	$(TIMED) $(BIN)/python -m lab fuzz $(FLAGS)
	$(TIMED) $(BIN)/python -m lab chaos --jobs neighbour --minutes $(or $(MINUTES),2)

clean: # remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist site pictures report.html

# The data, runs and measurements of study-smollm2.yaml, then its report: `make study SETS=FOLDER_OF_SETS`. A command runs only if the file that it
# makes does not exist. To run two at a time on two cores: OMP_NUM_THREADS=1 make -j2 study.
MODEGRAPH ?= modegraph
SETS ?= ../shared/data
S := runs/study
FIND := --mode auto --top-k 3
TUNED := pubmedqa_l 2wiki_train500
TEST_ONLY := hotpotqa_train musique_train100
SEEDS := 0 1 2
TRAIN := $(MODEGRAPH) train
START := --set model=$(S)/sft --set data=$(S)/responses --set max_steps=12
PAPER := --set model=$(S)/sft --set data=$(S)/pairs --set max_steps=12
MEASURE := $(MODEGRAPH) eval alignment --data $(S)/heldout --sampler vllm --max-answer-tokens 160 --measured $(S)/measured

K2 := rates/dpo-3.0e-4 dpo-k2-s1 dpo-k2-s2 rates/ms-3.0e-4 ms-k2-s1 ms-k2-s2
SEEDED := $(K2) $(SEEDS:%=ms-k64-s%) $(SEEDS:%=dpo-paper-s%)
SEED_0 := rates/dpo-3.0e-4 rates/ms-3.0e-4 ms-k64-s0 dpo-k64-s0 ms-k8-s0 dpo-k8-s0 dpo-paper-s0 ipo-paper-s0
RUNS := $(sort $(SEEDED) $(SEED_0))
RATES := ms-1.0e-4 ms-3.0e-4 dpo-1.0e-4 dpo-3.0e-4

report: $(RATES:%=$(S)/dev/%/alignment.json) $(RUNS:%=$(S)/test/%/alignment.json) $(S)/test/all/alignment.json $(S)/test/seed-0/alignment.json
report: $(S)/whole/rates/dpo-3.0e-4/config.json $(S)/whole/ms-k64-s0/config.json
report: $(foreach set,$(TUNED) $(TEST_ONLY),$(S)/$(set)/index/manifest.json $(S)/$(set)/questions.jsonl)
	$(MODEGRAPH) eval run configs/eval/study-smollm2.yaml

# Questions are split into train, dev and test by the hash of their ids; two sets are for testing only.
$(S)/pubmedqa_l/set/corpus.jsonl:
	$(MODEGRAPH) data import pubmedqa $(SETS)/pubmedqa_l/items.jsonl --out $(@D)
$(S)/pubmedqa_l/questions.jsonl: | $(S)/pubmedqa_l/set/corpus.jsonl
	$(MODEGRAPH) data split --questions $(S)/pubmedqa_l/set/questions.jsonl --train 100 --dev 8 --test 200 --anew --out $@
$(S)/2wiki_train500/questions.jsonl:
	$(MODEGRAPH) data split --questions $(SETS)/2wiki_train500/questions.jsonl --train 100 --dev 8 --test 200 --out $@
$(S)/hotpotqa_train/questions.jsonl:
	$(MODEGRAPH) data split --questions $(SETS)/hotpotqa_train/questions.jsonl --test 200 --out $@
$(S)/musique_train100/questions.jsonl:
	$(MODEGRAPH) data split --questions $(SETS)/musique_train100/questions.jsonl --test 100 --out $@
$(S)/pubmedqa_l/index/manifest.json: | $(S)/pubmedqa_l/set/corpus.jsonl
	$(MODEGRAPH) index $(S)/pubmedqa_l/set/corpus.jsonl --out $(@D)
$(S)/%/index/manifest.json:
	$(MODEGRAPH) index $(SETS)/$*/corpus.jsonl --out $(@D)

# SFT: the starting model and the reference model of every other run.
$(S)/%/pairs/summary.json: | $(S)/%/index/manifest.json $(S)/%/questions.jsonl
	$(MODEGRAPH) synth preferences $(S)/$*/index --questions $(S)/$*/questions.jsonl $(FIND) --context-size 0 --context-size 3 --split train --split dev --limit 48 --out $(@D)
$(S)/pairs/summary.json: | $(TUNED:%=$(S)/%/pairs/summary.json)
	$(MODEGRAPH) data join $(TUNED:%=$(S)/%/pairs) --out $(@D)
$(S)/sft/run.json: | $(S)/pairs/summary.json
	$(TRAIN) sft --config configs/train/sft-smollm2.yaml --set data=$(S)/pairs --set output=$(@D)

# K = 64 responses of the SFT policy to each of 32 prompts, and a few to each evaluation prompt.
# vLLM on a CPU samples three times as fast from a merged model as with a separate adapter.
SAMPLE = $(MODEGRAPH) synth responses $(S)/$*/index --questions $(S)/$*/questions.jsonl $(FIND) --context-size 3 --policy vllm:$(S)/sft-whole --max-answer-tokens 160 --out $(@D)
$(S)/sft-whole/config.json: | $(S)/sft/run.json
	$(TRAIN) export $(S)/sft --merge --out $(@D)
$(S)/%/responses/summary.json: | $(S)/%/index/manifest.json $(S)/%/questions.jsonl $(S)/sft-whole/config.json
	$(SAMPLE) --split train --limit 16 --samples 64
$(S)/%/dev/summary.json: | $(S)/%/responses/summary.json
	$(SAMPLE) --split dev --limit 10 --samples 4
$(S)/%/test/summary.json: | $(S)/%/responses/summary.json
	$(SAMPLE) --split test --limit 10 --samples 4
$(S)/responses/summary.json: | $(TUNED:%=$(S)/%/responses/summary.json)
	$(MODEGRAPH) data join $(TUNED:%=$(S)/%/responses) --out $(@D)
$(S)/heldout/summary.json: | $(TUNED:%=$(S)/%/dev/summary.json) $(TUNED:%=$(S)/%/test/summary.json)
	$(MODEGRAPH) data join $(TUNED:%=$(S)/%/dev) $(TUNED:%=$(S)/%/test) --out $(@D)

# Two learning rates for each objective at K = 2 with seed 0, measured on dev; the files in configs/train/ set the better one.
$(S)/rates/ms-%/run.json: | $(S)/responses/summary.json
	$(TRAIN) ms --config configs/train/ms-k64-smollm2.yaml $(START) --set best_against_worst=true --set learning_rate=$* --set output=$(@D)
$(S)/rates/dpo-%/run.json: | $(S)/responses/summary.json
	$(TRAIN) dpo --config configs/train/dpo-k64-smollm2.yaml $(START) --set best_against_worst=true --set learning_rate=$* --set output=$(@D)
$(S)/dev/%/alignment.json: | $(S)/rates/%/run.json $(S)/heldout/summary.json
	$(MEASURE) --samples 16 --split dev --runs $(S)/rates/$* --out $(@D)

# The runs at the better rate, with K = 64, K = 2 (best against worst response; seed 0 was trained above) and K = 8; three seeds for the main comparison.
$(S)/ms-k64-s%/run.json: | $(S)/responses/summary.json
	$(TRAIN) ms --config configs/train/ms-k64-smollm2.yaml $(START) --set seed=$* --set output=$(@D)
$(S)/dpo-k64-s%/run.json: | $(S)/responses/summary.json
	$(TRAIN) dpo --config configs/train/dpo-k64-smollm2.yaml $(START) --set seed=$* --set output=$(@D)
$(S)/ms-k2-s%/run.json: | $(S)/responses/summary.json
	$(TRAIN) ms --config configs/train/ms-k64-smollm2.yaml $(START) --set best_against_worst=true --set seed=$* --set output=$(@D)
$(S)/dpo-k2-s%/run.json: | $(S)/responses/summary.json
	$(TRAIN) dpo --config configs/train/dpo-k64-smollm2.yaml $(START) --set best_against_worst=true --set seed=$* --set output=$(@D)
$(S)/%-k8-s0/run.json: | $(S)/responses/summary.json
	$(TRAIN) $* --config configs/train/$*-k64-smollm2.yaml $(START) --set responses=8 --set output=$(@D)

# Runs on pairs made as in the paper (the rows that the SFT model was trained on): DPO with three seeds, and IPO with TRL.
$(S)/dpo-paper-s%/run.json: | $(S)/sft/run.json
	$(TRAIN) dpo --config configs/train/dpo-k64-smollm2.yaml $(PAPER) --set seed=$* --set output=$(@D)
$(S)/ipo-paper-s0/run.json: | $(S)/sft/run.json
	$(TRAIN) dpo --config configs/train/dpo-k64-smollm2.yaml $(PAPER) --set trainer=trl --set loss=ipo --set output=$(@D)

# Each run is measured on test; then one report covers the configurations with three seeds, and another covers all runs of seed 0.
$(S)/test/%/alignment.json: | $(S)/%/run.json $(S)/heldout/summary.json
	$(MEASURE) --samples 8 --split test --runs $(S)/$* --out $(@D)
$(S)/test/all/alignment.json: | $(SEEDED:%=$(S)/test/%/alignment.json)
	$(MEASURE) --samples 8 --split test --runs $(SEEDED:%=$(S)/%) --out $(@D)
$(S)/test/seed-0/alignment.json: | $(SEED_0:%=$(S)/test/%/alignment.json)
	$(MEASURE) --samples 8 --split test --runs $(SEED_0:%=$(S)/%) --out $(@D)
$(S)/whole/%/config.json: | $(S)/%/run.json
	$(TRAIN) export $(S)/$* --merge --out $(@D)

# Intermediate files are kept.
.SECONDARY:

# The models of examples.yaml, then its report: `make examples`. A command other than `eval run` runs only if the file that it makes does not exist.
MODEGRAPH ?= modegraph
RUN := runs/eval-examples
TINY := --config configs/tiny
ASK := --questions examples/questions.jsonl --mode dense --top-k 3

report: $(RUN)/dpo/run.json $(RUN)/ms/run.json $(RUN)/ms-k64/run.json
	$(MODEGRAPH) eval run configs/eval/examples.yaml

$(RUN)/index/manifest.json:
	$(MODEGRAPH) index examples/documents --out $(@D)

$(RUN)/preferences/train.jsonl: | $(RUN)/index/manifest.json
	$(MODEGRAPH) synth preferences $(RUN)/index $(ASK) --split train --split test --out $(@D)

$(RUN)/tiny/run.json:
	$(MODEGRAPH) train tiny $(TINY)/tiny.yaml --set texts=examples/documents --set output=$(@D)

$(RUN)/sft/run.json: | $(RUN)/tiny/run.json $(RUN)/preferences/train.jsonl
	$(MODEGRAPH) train sft $(TINY)/sft.yaml --set model=$(RUN)/tiny --set data=$(RUN)/preferences --set output=$(@D)

$(RUN)/dpo/run.json $(RUN)/ms/run.json: $(RUN)/%/run.json: | $(RUN)/sft/run.json
	$(MODEGRAPH) train $* $(TINY)/$*.yaml --set model=$(RUN)/sft --set data=$(RUN)/preferences --set output=$(@D)

$(RUN)/responses/train.jsonl: | $(RUN)/sft/run.json
	$(MODEGRAPH) synth responses $(RUN)/index $(ASK) --policy hf:$(RUN)/sft --samples 64 --max-answer-tokens 128 --context-size 3 --split train --limit 40 --out $(@D)

$(RUN)/ms-k64/run.json: | $(RUN)/responses/train.jsonl
	$(MODEGRAPH) train ms $(TINY)/ms.yaml --set model=$(RUN)/sft --set data=$(RUN)/responses --set batch_size=1 --set output=$(@D)

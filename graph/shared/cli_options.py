"""The options shared by several commands, each defined once: one name, one meaning, one line of help.

The main input of a command is an argument (INDEX, DOCUMENTS, RUN, CONFIG); everything else is an option, even where it is required
(--questions, --out). A command that uses an option in a narrower sense says so in its own description.
"""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.cli_app import INPUT, LIMITS, MODEL, OUTPUT, RETRIEVAL, option
from graph.shared.modes import MODES

SPEC = "hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, vllm:PATH_OR_NAME, openai:NAME@URL, or a name from `modegraph models list`"


def complete_mode(incomplete: str) -> list[str]:
    """The modes that start with the text typed so far, for shell completion."""
    return [mode for mode in MODES if mode.startswith(incomplete)]


def check_local(path: Path | None) -> Path | None:
    """The path; UserError for a URL."""
    from graph.shared.home import local_path

    return None if path is None else local_path(path)


def check_all_local(paths: list[Path]) -> list[Path]:
    """The paths; UserError if one is a URL."""
    from graph.shared.home import local_path

    return [local_path(path) for path in paths]


_INDEX = "Folder of an index, made by `modegraph index`."
IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", callback=check_local, help=_INDEX)]
IndexFolders = Annotated[list[Path], typer.Argument(metavar="INDEX", callback=check_all_local, help=_INDEX)]
_DOCUMENTS = (
    'Folder of documents (.md, .html, .pdf, .docx and others), one such file, or a .jsonl of {"id", "title", "text"}.'
)
Documents = Annotated[Path, typer.Argument(metavar="DOCUMENTS", help=_DOCUMENTS)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run of `modegraph train`.")]

Question = Annotated[str, typer.Argument(metavar="QUESTION", help="The question, in quotes.")]

_QUESTIONS = (
    "Questions, one JSON object per line (see examples/README.md), or a folder from `modegraph synth questions`."
)
Questions = Annotated[Path, option("--questions FILE", INPUT, _QUESTIONS)]
SomeQuestions = Annotated[Path | None, option("--questions FILE", INPUT, _QUESTIONS)]
_CORPUS = "Documents with the `sentences` that the questions' supporting_sentences refer to; by default corpus.jsonl in the folder of --questions, if it exists."
Corpus = Annotated[Path | None, option("FILE", INPUT, _CORPUS)]
_DATA = "Folder of data that `modegraph synth` made."
Data = Annotated[Path, option("--data FOLDER", INPUT, _DATA)]
SomeDataFolders = Annotated[list[Path] | None, option("--data FOLDER", INPUT, f"{_DATA} Repeatable.")]
_RUNS = "Runs to compare (--runs A B C); the first is the baseline. Repeatable."
Runs = Annotated[list[Path], option("--runs FOLDER", INPUT, _RUNS)]
_SPLIT = "Use only this split: train, dev or test."
_ONE_SPLIT = option("--split NAME", INPUT, _SPLIT)
Split = Annotated[str, _ONE_SPLIT]
SomeSplit = Annotated[str | None, _ONE_SPLIT]
Splits = Annotated[list[str] | None, option("--split NAME", INPUT, f"{_SPLIT} Repeatable.")]
_CONFIG = "Read settings from this YAML file (`modegraph config show` prints them)."
Config = Annotated[Path | None, option("--config FILE", INPUT, _CONFIG)]
_SET = "Set one setting, overriding --config (a nested one: --set lora.rank=8). Repeatable."
Set = Annotated[list[str] | None, option("--set KEY=VALUE", INPUT, _SET)]
_CONTEXT_SIZES = "Use only rows with this many passages in their context. Repeatable."
ContextSizes = Annotated[list[int] | None, option("--context-size N", INPUT, _CONTEXT_SIZES, min=0)]
_STRICT = "Exit with status 1 if there was a warning, for example about a skipped file."
Strict = Annotated[bool, option("--strict", INPUT, _STRICT)]

_ENGINE = "Where documents are split, read and encoded: local (this process) or ray (the workers of a Ray cluster)."
EngineChoice = Annotated[str, option("--engine NAME", LIMITS, _ENGINE)]
_RAY_ADDRESS = "Address of a running Ray cluster; without it, --engine ray starts one on this machine."
RayAddress = Annotated[str | None, option("--ray-address HOST:PORT", LIMITS, _RAY_ADDRESS)]

_MODE = f"How to retrieve: {', '.join(MODES[:-1])} or {MODES[-1]}."
ModeName = Annotated[str, option("--mode MODE", RETRIEVAL, _MODE, autocompletion=complete_mode)]
SomeMode = Annotated[str | None, option("--mode MODE", RETRIEVAL, _MODE, autocompletion=complete_mode)]
_MODES = "Modes to compare (--modes dense naive); the first is the baseline. Repeatable."
Modes = Annotated[list[str], option("--modes MODE", RETRIEVAL, _MODES, autocompletion=complete_mode)]
_TOPK = "Maximum number of items to retrieve: passages, unless the mode returns other items."
TopK = Annotated[int, option("--top-k N", RETRIEVAL, _TOPK)]
SomeTopK = Annotated[int | None, option("--top-k N", RETRIEVAL, _TOPK)]
_UNIT = "What the modes statements and topics return: passages or propositions."
Unit = Annotated[str, option("--as UNIT", RETRIEVAL, _UNIT)]
_WHERE = "Only documents whose metadata match: KEY=VALUE, also != < <= > >= and * in values. Repeatable."
Where = Annotated[list[str] | None, option("CONDITION", RETRIEVAL, _WHERE)]
_SELECTOR = "What selects propositions in modes local and global: threshold, llm (calls --model), or a trained selector, as a folder or hub name. In mode hops, a selector of size hop reranks the results. By default, hops uses the built-in one if it suits the encoder of the index; with the value none, hops does not rerank."
Selector = Annotated[str, option("NAME", RETRIEVAL, _SELECTOR)]
SomeSelector = Annotated[str | None, option("NAME", RETRIEVAL, _SELECTOR)]
_RERANKER = option("NAME", RETRIEVAL, "Cross-encoder that reranks the results, as a folder or hub name.")
Reranker = Annotated[str, _RERANKER]
SomeReranker = Annotated[str | None, _RERANKER]
_VERIFIER = "What checks the sentences: a trained verifier, as a folder or hub name, or a language model (support, hf:NAME or openvino:FOLDER), which is slower and better. By default, the shipped word-based verifier (`eval reading`: none)."
Verifier = Annotated[str, option("NAME", MODEL, _VERIFIER)]
SomeVerifier = Annotated[str | None, option("NAME", MODEL, _VERIFIER)]
_UNSUPPORTED = "What to do with sentences of the answer that the passages do not support: mark, drop or ignore."
UnsupportedAs = Annotated[str, option("--unsupported ACTION", OUTPUT, _UNSUPPORTED)]
SomeUnsupportedAs = Annotated[str | None, option("--unsupported ACTION", OUTPUT, _UNSUPPORTED)]
_ABSTAIN = "Answer “not in the documents”, without calling the model, if the probability that the documents do not cover the question is at least P; 1: never."
Abstain = Annotated[float | None, option("P", RETRIEVAL, _ABSTAIN)]

_MODEL = option("SPEC", MODEL, f"Language model to use: {SPEC}.")
Model = Annotated[str, _MODEL]
Models = Annotated[list[str], option("--model SPEC", MODEL, f"Language model to use: {SPEC}. Repeatable.")]
SomeModel = Annotated[str | None, _MODEL]
_WRITER = f"Language model that writes instead of rules: {SPEC}."
Writer = Annotated[str | None, option("--writer SPEC", MODEL, _WRITER)]
Writers = Annotated[list[str] | None, option("--writer SPEC", MODEL, f"{_WRITER} Repeatable.")]
Judge = Annotated[str | None, option("SPEC", MODEL, f"Language model that judges what the writers wrote: {SPEC}.")]
_EXTRACTOR = f"Language model that reads propositions from passages: {SPEC}."
ExtractorModel = Annotated[str | None, option("SPEC", MODEL, _EXTRACTOR)]
SummaryModel = Annotated[str | None, option("SPEC", MODEL, f"Language model that writes the summaries: {SPEC}.")]
Samples = Annotated[int, option("N", MODEL, "Responses to sample for each prompt.", min=2, max=64)]
Seed = Annotated[int, option("N", MODEL, "Seed of every random choice.", min=0)]

_OUT = option("--out PATH", OUTPUT, "Where to write the result.", callback=check_local)
Out = Annotated[Path, _OUT]
SomeOut = Annotated[Path | None, _OUT]
_PREVIEW = "Show this many rows and write nothing; --out is not needed."
Preview = Annotated[int | None, option("N", OUTPUT, _PREVIEW, min=1)]
AsJson = Annotated[bool, option("--json", OUTPUT, "Print the result as one JSON object.")]

_LIMIT = "Use at most this many questions (`eval support`: sentences; `eval alignment`: prompts)."
Limit = Annotated[int | None, option("N", LIMITS, _LIMIT, min=1)]
_CONVERSATIONS = (
    "Conversations of the run's dev rows to compare; by default 20 for `train export --gguf`, 16 for `serve check`."
)
Conversations = Annotated[int | None, option("N", LIMITS, _CONVERSATIONS, min=1)]
_MAX_CONTEXT = "Longest context, in the model's tokens; passages that do not fit are left out."
MaxContextTokens = Annotated[int | None, option("N", LIMITS, _MAX_CONTEXT)]
MaxAnswerTokens = Annotated[int, option("N", LIMITS, "Longest answer, in tokens.", min=1)]
_FILE_SECONDS = "Longest time to read a file of up to 1 MiB that is not plain text, in seconds; larger files get more."
FileSeconds = Annotated[float, option("S", LIMITS, _FILE_SECONDS, min=0.1)]
_OCR = "Read pages of a PDF that have no text (scans) by OCR: tesseract, which must be installed, as must pdftoppm."
OcrProgram = Annotated[str | None, option("--ocr NAME", INPUT, _OCR)]
OcrLanguages = Annotated[str, option("--ocr-languages NAMES", INPUT, "Languages of scans, such as eng+deu.")]
OcrPages = Annotated[int, option("--ocr-pages N", LIMITS, "Maximum number of pages of a file to read by OCR.", min=1)]
_OCR_PAGE_SECONDS = "Longest time to read a page by OCR, in seconds."
OcrPageSeconds = Annotated[float, option("--ocr-page-seconds S", LIMITS, _OCR_PAGE_SECONDS, min=1)]
_WHOLE_PAGES = "Read HTML pages with the text around the main content: navigation, footers, cookie notices."
WholePages = Annotated[bool, option("--whole-pages", INPUT, _WHOLE_PAGES)]
_FILE_MEMORY = "Maximum memory for reading a file that is not plain text, in MiB."
FileMemory = Annotated[int, option("--file-memory-mb N", LIMITS, _FILE_MEMORY, min=64)]

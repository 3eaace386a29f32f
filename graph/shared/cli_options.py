"""The options shared by several commands, each defined once: one name, one meaning, one line of help.

The main input of a command is an argument (INDEX, DOCUMENTS, RUN, CONFIG); everything else is an option, even where it is required
(--questions, --out). A command that uses an option in a narrower sense says so in its own description.
"""

from pathlib import Path
from typing import Annotated, get_args

import typer

from graph.shared.cli_app import INPUT, LIMITS, MODEL, OUTPUT, RETRIEVAL, option
from graph.shared.modes import Mode

MODES = get_args(Mode)
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
Documents = Annotated[
    Path,
    typer.Argument(
        metavar="DOCUMENTS",
        help='Folder of documents (.md, .html, .pdf, .docx and others), one such file, or a .jsonl of {"id", "title", "text"}.',
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run of `modegraph train`.")]

Question = Annotated[str, typer.Argument(metavar="QUESTION", help="The question, in quotes.")]

_QUESTIONS = option(
    "--questions FILE",
    INPUT,
    "Questions, one JSON object per line (see examples/README.md), or a folder from `modegraph synth questions`.",
)
Questions = Annotated[Path, _QUESTIONS]
SomeQuestions = Annotated[Path | None, _QUESTIONS]
Corpus = Annotated[
    Path | None,
    option(
        "FILE",
        INPUT,
        "Documents with the `sentences` that the questions' supporting_sentences refer to; by default corpus.jsonl in the folder of --questions, if it exists.",
    ),
]
_DATA = "Folder of data that `modegraph synth` made."
Data = Annotated[Path, option("--data FOLDER", INPUT, _DATA)]
SomeDataFolders = Annotated[list[Path] | None, option("--data FOLDER", INPUT, f"{_DATA} Repeatable.")]
Runs = Annotated[
    list[Path],
    option("--runs FOLDER", INPUT, "Runs to compare (--runs A B C); the first is the baseline. Repeatable."),
]
_SPLIT = "Use only this split: train, dev or test."
_ONE_SPLIT = option("--split NAME", INPUT, _SPLIT)
Split = Annotated[str, _ONE_SPLIT]
SomeSplit = Annotated[str | None, _ONE_SPLIT]
Splits = Annotated[list[str] | None, option("--split NAME", INPUT, f"{_SPLIT} Repeatable.")]
Config = Annotated[
    Path | None,
    option("--config FILE", INPUT, "Read settings from this YAML file (`modegraph config show` prints them)."),
]
Set = Annotated[
    list[str] | None,
    option(
        "--set KEY=VALUE", INPUT, "Set one setting, overriding --config (a nested one: --set lora.rank=8). Repeatable."
    ),
]
ContextSizes = Annotated[
    list[int] | None,
    option("--context-size N", INPUT, "Use only rows with this many passages in their context. Repeatable.", min=0),
]

Strict = Annotated[
    bool, option("--strict", INPUT, "Exit with 1 if there was a warning, for example about a skipped file.")
]

EngineChoice = Annotated[
    str,
    option(
        "--engine NAME",
        LIMITS,
        "Where documents are split, read and encoded: local (this process) or ray (the workers of a Ray cluster).",
    ),
]
RayAddress = Annotated[
    str | None,
    option(
        "--ray-address HOST:PORT",
        LIMITS,
        "Address of a running Ray cluster; without it, --engine ray starts one on this machine.",
    ),
]

_MODE = option(
    "--mode MODE", RETRIEVAL, f"How to retrieve: {', '.join(MODES[:-1])} or {MODES[-1]}.", autocompletion=complete_mode
)
ModeName = Annotated[str, _MODE]
SomeMode = Annotated[str | None, _MODE]
Modes = Annotated[
    list[str],
    option(
        "--modes MODE",
        RETRIEVAL,
        "Modes to compare (--modes dense naive); the first is the baseline. Repeatable.",
        autocompletion=complete_mode,
    ),
]
_TOPK = option(
    "--top-k N", RETRIEVAL, "Maximum number of items to retrieve: passages, unless the mode returns other items."
)
TopK = Annotated[int, _TOPK]
SomeTopK = Annotated[int | None, _TOPK]
Unit = Annotated[
    str, option("--as UNIT", RETRIEVAL, "What modes statements and topics return: passages or propositions.")
]
Where = Annotated[
    list[str] | None,
    option(
        "CONDITION",
        RETRIEVAL,
        "Only documents whose metadata match: KEY=VALUE, also != < <= > >= and * in values. Repeatable.",
    ),
]
_SELECTOR = option(
    "NAME",
    RETRIEVAL,
    "What selects propositions in modes local and global: threshold, llm (calls --model), or a trained selector, as a folder or hub name. In mode hops, a selector of size hop reranks the results. With none, the threshold selects and mode hops does not rerank.",
)
Selector = Annotated[str, _SELECTOR]
SomeSelector = Annotated[str | None, _SELECTOR]
_RERANKER = option("NAME", RETRIEVAL, "Cross-encoder that reranks the results, as a folder or hub name.")
Reranker = Annotated[str, _RERANKER]
SomeReranker = Annotated[str | None, _RERANKER]
_VERIFIER = option(
    "NAME",
    MODEL,
    "What checks the sentences: a trained verifier, as a folder or hub name, or a language model (support, hf:NAME or openvino:FOLDER), which is slower and better. By default, the shipped word-based verifier (`eval reading`: none).",
)
Verifier = Annotated[str, _VERIFIER]
SomeVerifier = Annotated[str | None, _VERIFIER]
_UNSUPPORTED = option(
    "--unsupported WHAT",
    OUTPUT,
    "What to do with sentences of the answer that the passages do not support: mark, drop or ignore.",
)
UnsupportedAs = Annotated[str, _UNSUPPORTED]
SomeUnsupportedAs = Annotated[str | None, _UNSUPPORTED]
Abstain = Annotated[
    float | None,
    option(
        "P",
        RETRIEVAL,
        "Answer “not in the documents”, without calling the model, if the probability that the documents do not cover the question is at least P; 1: never.",
    ),
]

_MODEL = option("SPEC", MODEL, f"Language model to use: {SPEC}.")
Model = Annotated[str, _MODEL]
Models = Annotated[list[str], option("--model SPEC", MODEL, f"Language model to use: {SPEC}. Repeatable.")]
SomeModel = Annotated[str | None, _MODEL]
_WRITER = f"Language model that writes instead of rules: {SPEC}."
Writer = Annotated[str | None, option("--writer SPEC", MODEL, _WRITER)]
Writers = Annotated[list[str] | None, option("--writer SPEC", MODEL, f"{_WRITER} Repeatable.")]
Judge = Annotated[str | None, option("SPEC", MODEL, f"Language model that judges what the writers wrote: {SPEC}.")]
ExtractorModel = Annotated[
    str | None, option("SPEC", MODEL, f"Language model that reads propositions from passages: {SPEC}.")
]
SummaryModel = Annotated[str | None, option("SPEC", MODEL, f"Language model that writes the summaries: {SPEC}.")]
Samples = Annotated[int, option("N", MODEL, "Responses to sample for each prompt.", min=2, max=64)]
Seed = Annotated[int, option("N", MODEL, "Seed of every random choice.", min=0)]

_OUT = option("--out PATH", OUTPUT, "Where to write the result.", callback=check_local)
Out = Annotated[Path, _OUT]
SomeOut = Annotated[Path | None, _OUT]
Preview = Annotated[
    int | None, option("N", OUTPUT, "Show this many rows and write nothing; --out is not needed.", min=1)
]
AsJson = Annotated[bool, option("--json", OUTPUT, "Print the result as one JSON object.")]

Limit = Annotated[int | None, option("N", LIMITS, "Use at most this many questions.", min=1)]
Conversations = Annotated[
    int | None,
    option(
        "N",
        LIMITS,
        "Conversations of the run's dev rows to compare; by default 20 for `train export --gguf`, 16 for `serve check`.",
        min=1,
    ),
]
MaxContextTokens = Annotated[
    int | None, option("N", LIMITS, "Longest context, in the model's tokens; passages that do not fit are left out.")
]
MaxAnswerTokens = Annotated[int, option("N", LIMITS, "Longest answer, in tokens.", min=1)]
FileSeconds = Annotated[
    float,
    option(
        "S",
        LIMITS,
        "Longest time to read a file of up to 1 MiB that is not plain text, in seconds; larger files get more.",
        min=0.1,
    ),
]
OcrProgram = Annotated[
    str | None,
    option(
        "--ocr NAME",
        INPUT,
        "Read pages of a PDF that have no text (scans) by OCR: tesseract, which must be installed, as must pdftoppm.",
    ),
]
OcrLanguages = Annotated[str, option("--ocr-languages NAMES", INPUT, "Languages of scans, such as eng+deu.")]
OcrPages = Annotated[int, option("--ocr-pages N", LIMITS, "Maximum number of pages of a file to read by OCR.", min=1)]
OcrPageSeconds = Annotated[
    float, option("--ocr-page-seconds S", LIMITS, "Longest time to read a page by OCR, in seconds.", min=1)
]
WholePages = Annotated[
    bool,
    option(
        "--whole-pages",
        INPUT,
        "Read HTML pages with the text around the main content: navigation, footers, cookie notices.",
    ),
]
FileMemory = Annotated[
    int,
    option("--file-memory-mb N", LIMITS, "Maximum memory for reading a file that is not plain text, in MiB.", min=64),
]

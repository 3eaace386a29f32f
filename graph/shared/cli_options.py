"""The options shared by several commands, each defined once: one name, one type, one meaning, one line of help.

Required inputs are arguments (INDEX, DOCUMENTS, RUN, CONFIG); everything else is an option. A command that uses an option in a narrower
sense says so in its own description.
"""

from pathlib import Path
from typing import Annotated, get_args

import typer

from graph.shared.cli_app import INPUT, LIMITS, MODEL, OUTPUT, RETRIEVAL
from graph.shared.modes import Mode

MODES = get_args(Mode)
SPEC = "hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, vllm:PATH_OR_NAME, openai:NAME@URL, or a name of `modegraph models list`"


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

# Input
_QUESTIONS = typer.Option(
    "--questions",
    metavar="FILE",
    rich_help_panel=INPUT,
    help="Questions, one JSON object a line (see examples/README.md), or a folder of `modegraph synth questions`.",
)
Questions = Annotated[Path, _QUESTIONS]
SomeQuestions = Annotated[Path | None, _QUESTIONS]
Corpus = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=INPUT,
        help="Documents with the `sentences` that the questions' supporting_sentences refer to; by default corpus.jsonl beside --questions, if it exists.",
    ),
]
_DATA = "Folder of data that `modegraph synth` made."
Data = Annotated[Path, typer.Option("--data", metavar="FOLDER", rich_help_panel=INPUT, help=_DATA)]
SomeDataFolders = Annotated[
    list[Path] | None, typer.Option("--data", metavar="FOLDER", rich_help_panel=INPUT, help=f"{_DATA} Repeatable.")
]
Runs = Annotated[
    list[Path],
    typer.Option(
        "--runs",
        metavar="FOLDER",
        rich_help_panel=INPUT,
        help="Runs to compare (--runs A B C); differences are from the first. Repeatable.",
    ),
]
_SPLIT = "Use only this split: train, dev or test."
_ONE_SPLIT = typer.Option("--split", metavar="NAME", rich_help_panel=INPUT, help=_SPLIT)
Split = Annotated[str, _ONE_SPLIT]
SomeSplit = Annotated[str | None, _ONE_SPLIT]
Splits = Annotated[
    list[str] | None, typer.Option("--split", metavar="NAME", rich_help_panel=INPUT, help=f"{_SPLIT} Repeatable.")
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        rich_help_panel=INPUT,
        help="Read settings from this YAML file (`modegraph config show` prints them).",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        rich_help_panel=INPUT,
        help="Change one setting, over --config (inner ones: --set lora.rank=8). Repeatable.",
    ),
]
ContextSizes = Annotated[
    list[int] | None,
    typer.Option(
        "--context-size",
        metavar="N",
        min=0,
        rich_help_panel=INPUT,
        help="Use only rows with this many passages in their context. Repeatable.",
    ),
]

Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        metavar="",
        rich_help_panel=INPUT,
        help="Exit with 1 if there was a warning, such as about a skipped file.",
    ),
]

# Limits
EngineChoice = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=LIMITS,
        help="Where documents are split, read and encoded: local (this process) or ray (the workers of a Ray cluster).",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        rich_help_panel=LIMITS,
        help="Address of a running Ray cluster; without it, --engine ray starts one on this machine.",
    ),
]

# Retrieval
_MODE = typer.Option(
    "--mode",
    metavar="MODE",
    rich_help_panel=RETRIEVAL,
    autocompletion=complete_mode,
    help=f"How to retrieve: {', '.join(MODES[:-1])} or {MODES[-1]}.",
)
ModeName = Annotated[str, _MODE]
SomeMode = Annotated[str | None, _MODE]
Modes = Annotated[
    list[str],
    typer.Option(
        "--modes",
        metavar="MODE",
        rich_help_panel=RETRIEVAL,
        autocompletion=complete_mode,
        help="Modes to compare (--modes dense naive); the first is the baseline. Repeatable.",
    ),
]
_TOPK = typer.Option("--top-k", metavar="N", rich_help_panel=RETRIEVAL, help="Passages to retrieve, at most.")
TopK = Annotated[int, _TOPK]
SomeTopK = Annotated[int | None, _TOPK]
Unit = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="UNIT",
        rich_help_panel=RETRIEVAL,
        help="What modes statements and topics return: passages or propositions.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        rich_help_panel=RETRIEVAL,
        help="Only documents whose metadata match: KEY=VALUE, also != < <= > >= and * in values. Repeatable.",
    ),
]
_SELECTOR = typer.Option(
    metavar="NAME",
    rich_help_panel=RETRIEVAL,
    help="What selects propositions: threshold, llm (calls --model), or a trained selector, as a folder or hub name; a selector of size hop reranks in mode hops. none: threshold, and no trained hop in mode hops.",
)
Selector = Annotated[str, _SELECTOR]
SomeSelector = Annotated[str | None, _SELECTOR]
_RERANKER = typer.Option(
    metavar="NAME", rich_help_panel=RETRIEVAL, help="Cross-encoder that reranks the results, as a folder or hub name."
)
Reranker = Annotated[str, _RERANKER]
SomeReranker = Annotated[str | None, _RERANKER]
_VERIFIER = typer.Option(
    metavar="NAME",
    rich_help_panel=MODEL,
    help="Trained verifier, as a folder or hub name; by default the one shipped with modegraph.",
)
Verifier = Annotated[str, _VERIFIER]
SomeVerifier = Annotated[str | None, _VERIFIER]
_UNSUPPORTED = typer.Option(
    "--unsupported",
    metavar="WHAT",
    rich_help_panel=OUTPUT,
    help="What to do with sentences of the answer that the passages do not support: mark, drop or ignore.",
)
UnsupportedAs = Annotated[str, _UNSUPPORTED]
SomeUnsupportedAs = Annotated[str | None, _UNSUPPORTED]
Abstain = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        rich_help_panel=RETRIEVAL,
        help="Answer “not in the documents”, without calling the model, if the probability that the documents do not cover the question is at least P; 1: never.",
    ),
]

# Model
_MODEL = typer.Option(metavar="SPEC", rich_help_panel=MODEL, help=f"Language model to use: {SPEC}.")
Model = Annotated[str, _MODEL]
Models = Annotated[
    list[str],
    typer.Option("--model", metavar="SPEC", rich_help_panel=MODEL, help=f"Language model to use: {SPEC}. Repeatable."),
]
SomeModel = Annotated[str | None, _MODEL]
_WRITER = f"Language model that writes in place of rules: {SPEC}."
Writer = Annotated[str | None, typer.Option("--writer", metavar="SPEC", rich_help_panel=MODEL, help=_WRITER)]
Writers = Annotated[
    list[str] | None, typer.Option("--writer", metavar="SPEC", rich_help_panel=MODEL, help=f"{_WRITER} Repeatable.")
]
Judge = Annotated[
    str | None,
    typer.Option(metavar="SPEC", rich_help_panel=MODEL, help=f"Language model that judges what was written: {SPEC}."),
]
ExtractorModel = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", rich_help_panel=MODEL, help=f"Language model that reads propositions from passages: {SPEC}."
    ),
]
SummaryModel = Annotated[
    str | None,
    typer.Option(metavar="SPEC", rich_help_panel=MODEL, help=f"Language model that writes the summaries: {SPEC}."),
]
Samples = Annotated[
    int, typer.Option(metavar="N", min=2, max=64, rich_help_panel=MODEL, help="Responses to draw for each prompt.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, rich_help_panel=MODEL, help="Seed of every random choice.")]

# Output
_OUT = typer.Option(
    "--out", metavar="PATH", callback=check_local, rich_help_panel=OUTPUT, help="Where to write the result."
)
Out = Annotated[Path, _OUT]
SomeOut = Annotated[Path | None, _OUT]
Preview = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, rich_help_panel=OUTPUT, help="Show this many rows and write nothing; --out is not needed."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", metavar="", rich_help_panel=OUTPUT, help="Print the result as one JSON object.")
]

# Limits
Limit = Annotated[
    int | None, typer.Option(metavar="N", min=1, rich_help_panel=LIMITS, help="Use at most this many questions.")
]
Conversations = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=LIMITS,
        help="Conversations of the run's dev rows to compare; 20 by default (`train export --gguf`), 16 (`serve check`).",
    ),
]
MaxContextTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=LIMITS,
        help="Longest context, in the model's tokens; passages that do not fit are left out.",
    ),
]
MaxAnswerTokens = Annotated[
    int, typer.Option(metavar="N", min=1, rich_help_panel=LIMITS, help="Longest answer, in tokens.")
]
FileSeconds = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=0.1,
        rich_help_panel=LIMITS,
        help="Longest time to read a file of up to 1 MiB that is not plain text, in seconds; larger files get more.",
    ),
]
OcrProgram = Annotated[
    str | None,
    typer.Option(
        "--ocr",
        metavar="NAME",
        rich_help_panel=INPUT,
        help="Read pages of a PDF that have no text (scans) by OCR: tesseract, with pdftoppm, which must both be installed.",
    ),
]
OcrLanguages = Annotated[
    str,
    typer.Option(
        "--ocr-languages", metavar="NAMES", rich_help_panel=INPUT, help="Languages of scans, such as eng+deu."
    ),
]
OcrPages = Annotated[
    int,
    typer.Option(
        "--ocr-pages", metavar="N", min=1, rich_help_panel=LIMITS, help="Most pages of a file to read by OCR."
    ),
]
OcrPageSeconds = Annotated[
    float,
    typer.Option(
        "--ocr-page-seconds",
        metavar="S",
        min=1,
        rich_help_panel=LIMITS,
        help="Longest time to read a page by OCR, in seconds.",
    ),
]
WholePages = Annotated[
    bool,
    typer.Option(
        "--whole-pages",
        metavar="",
        rich_help_panel=INPUT,
        help="Read HTML pages with the text around the main content: navigation, footers, cookie notices.",
    ),
]
FileMemory = Annotated[
    int,
    typer.Option(
        "--file-memory-mb",
        metavar="N",
        min=64,
        rich_help_panel=LIMITS,
        help="Most memory to read a file that is not plain text, in MiB.",
    ),
]

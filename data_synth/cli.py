"""The commands of data synthesis: `modegraph synth …` makes training data, `modegraph data …` validates, imports, splits and joins it.

Of the commands of `synth`, those that make labelled rows from an index (`reading`, `relevance` and `claims`) are here; those that write texts are
in data_synth/cli_generate.py."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from data_synth.cli_generate import register_preferences, register_questions, register_responses
from graph.errors import UserError
from graph.shared.cli_app import DATA, INPUT, MODEL, OUTPUT, RETRIEVAL, Command, Group, command, option
from graph.shared.cli_options import (
    SPEC,
    AsJson,
    Config,
    Corpus,
    IndexFolder,
    Out,
    Preview,
    Questions,
    Seed,
    Set,
    SomeOut,
    Splits,
)
from graph.shared.console import print_json, say, track

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from data_synth.dataset.validate import Validation
    from data_synth.rows import Form
    from graph.types import OpenModel


def register_reading(synth: typer.Typer) -> None:
    @synth.command(cls=command(settings="data_synth.reading.reading_rows:ReadingSettings"))
    def reading(
        index: IndexFolder,
        questions: Questions,
        split: Splits = None,
        config: Config = None,
        settings: Set = None,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make rows that teach reading: questions over shuffled passages, answered in few words with citations.

        Gold passages, which contain a question's evidence, are mixed with others, such as BM25's top hits; in a share of the
        rows the passages do not answer the question, and the answer is "not in the documents". Data for `train sft`.
        """
        from data_synth.contexts import pick_questions
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.reading.reading_form import READING
        from data_synth.reading.reading_rows import ReadingSettings, reading_rows, set_of_index
        from graph.config import load_settings
        from graph.documents.questions import read_questions
        from graph.index.index import open_index

        chosen = load_settings(ReadingSettings, config, settings or ())
        ledger_of(out, preview)
        picked = pick_questions(read_questions(questions), split or [])
        rows = reading_rows(set_of_index(open_index(index), picked), chosen)
        origin = {"Index": index.absolute().name, "Questions": questions.name}
        if not write_or_preview(rows, READING, origin, out, preview, as_json):
            raise typer.Exit(1)


Beside = Annotated[
    list[Path] | None,
    option(
        "FOLDER",
        INPUT,
        "Relevance data to train on as well: questions that it contains keep their split, and propositions that it contains in another "
        "split are left out. Repeatable.",
    ),
]
SplitBy = Annotated[
    Literal["passages", "questions"],
    option(
        "UNIT",
        INPUT,
        "What no two splits share: passages and questions, or only `questions`, for questions that all need the same facts.",
    ),
]
Negatives = Annotated[int, option("N", RETRIEVAL, "Hard negatives to find for each question.", min=0)]
DistilFrom = Annotated[
    str | None, option("SPEC", MODEL, f"Language model that labels the propositions, instead of the gold data: {SPEC}.")
]


def register_relevance(synth: typer.Typer, open_model: "OpenModel") -> None:
    @synth.command(cls=Command)
    def relevance(
        index: IndexFolder,
        questions: Questions,
        corpus: Corpus = None,
        beside: Beside = None,
        split_by: SplitBy = "passages",
        negatives: Negatives = 64,
        distil_from: DistilFrom = None,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Label the relevant and irrelevant propositions of each question: data for `train selector`.

        Labels come from the questions' gold passages and sentences, or, with --distil-from, from a model. A question keeps the
        split that its file states; the seed determines the splits of questions without one.
        """
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.relevance.relevance_form import (
            RELEVANCE,
            SPLIT_BY,
            check_sources,
            read_gold_questions,
            with_sentences,
        )
        from data_synth.relevance.relevance_rows import relevance_rows
        from data_synth.relevance.split import exclude_overlap, keep_earlier_splits, make_split, read_earlier_splits
        from graph.index.index import open_index

        earlier_questions, earlier_propositions = read_earlier_splits(beside or [])
        gold = keep_earlier_splits(read_gold_questions(questions), earlier_questions)
        if distil_from is None:
            gold = with_sentences(gold, corpus or corpus_of(questions))
        opened_index = open_index(index)
        check_sources(gold, opened_index.sources())
        ledger = ledger_of(out, preview)
        model = open_model(distil_from, ledger) if distil_from else None
        origin = {
            "Index": index.absolute().name,
            "Encoder": opened_index.encoder_source.fingerprint,
            "Questions": questions.name,
            "Labelled by": model.name if model else "the questions' gold passages and sentences",
            "Hard negatives for a question": str(negatives),
            "Seed": str(seed),
            SPLIT_BY: split_by,
            "Separated from": ", ".join(folder.absolute().name for folder in beside or []) or "no other dataset",
        }
        split = exclude_overlap(make_split(opened_index, gold, seed, split_by), opened_index, earlier_propositions)
        tracked = gold if preview is not None else track(gold, "questions", len(gold))
        rows = relevance_rows(opened_index, tracked, split, negatives, model)
        if not write_or_preview(rows, RELEVANCE, origin, out, preview, as_json):
            raise typer.Exit(1)


PerPassage = Annotated[
    int, option("N", OUTPUT, "Largest number of supported claims per passage, each with an unsupported version.", min=1)
]


def register_claims(synth: typer.Typer) -> None:
    @synth.command(cls=Command)
    def claims(
        index: IndexFolder,
        per_passage: PerPassage = 4,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make sentences that passages support, and falsified ones: data for `train verifier`.

        Rules restate a sentence, then change a name, a number, a negation or who did what, or replace a word with its opposite.
        """
        from data_synth.claims.claims import CLAIMS, claim_rows, passages_of
        from data_synth.dataset.write import ledger_of, write_or_preview
        from graph.index.index import open_index

        ledger_of(out, preview)
        rows = claim_rows(passages_of(open_index(index)), per_passage, seed)
        origin = {"Index": index.absolute().name, "Claims per passage": str(per_passage), "Seed": str(seed)}
        if not write_or_preview(rows, CLAIMS, origin, out, preview, as_json):
            raise typer.Exit(1)


def register(app: typer.Typer, open_model: "OpenModel") -> None:
    """Add `synth` and `data` and their sub-commands to the command line."""
    synth = typer.Typer(help="Make questions and training data from an index.", no_args_is_help=True, cls=Group)
    data = typer.Typer(help="Check, import, split and join training data.", no_args_is_help=True, cls=Group)
    app.add_typer(synth, name="synth", rich_help_panel=DATA)
    app.add_typer(data, name="data", rich_help_panel=DATA)
    register_preferences(synth, open_model)
    register_responses(synth, open_model)
    register_questions(synth, open_model)
    register_reading(synth)
    register_relevance(synth, open_model)
    register_claims(synth)
    data.command(cls=Command)(validate)
    data.command("import", cls=command(settings="data_synth.reading.reading_rows:ImportSettings"))(import_set)
    data.command(cls=Command)(split)
    data.command(cls=Command)(join)


def corpus_of(questions: Path) -> Path:
    """The default of --corpus: corpus.jsonl in the folder of --questions, which may be a folder itself."""
    from data_synth.relevance.relevance_form import CORPUS

    return (questions if questions.is_dir() else questions.parent) / CORPUS


MAX_SHOWN_ROWS = 20
Count = Annotated[int, option("N", INPUT, "Number of questions in this split.", min=0)]
FEEDBACK = "feedback"
READING = "reading"
SUPPORT = "support"
QA_FEEDBACK = "qa_feedback"
SETS = ("pubmedqa", "medmcqa", "riddlesense", QA_FEEDBACK, SUPPORT, READING, FEEDBACK)


def validate(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A .jsonl or .parquet file made by `modegraph synth`, a questions file, or a folder of such .jsonl files.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Check every row of training data, or of questions.

    The output lists the line and the problems of the first 20 bad rows of each file (--json: of all), and the remedy; the exit
    status is 1 if any row is bad.
    """
    from dataclasses import asdict

    from data_synth.dataset.validate import files_to_check, validate_file

    results = {file: validate_file(file) for file in files_to_check(data)}
    if as_json:
        files = [{"file": str(file), "share_good": one.share_good, **asdict(one)} for file, one in results.items()]
        print_json({"folder": str(data), "files": files} if data.is_dir() else files[0])
    else:
        print("\n".join(line for file, one in results.items() for line in describe_validation(file, one)))
    if any(one.bad for one in results.values()):
        raise typer.Exit(1)


def import_set(
    kind: Annotated[str, typer.Argument(metavar="SET", help=f"One of {', '.join(SETS)}.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=(
                "Rows of the set, one JSON object per line; for feedback, the index folder; for reading, a folder with corpus.jsonl and "
                "questions.jsonl, or a folder of such folders, named in the setting `sets`; for support, a folder of sets, each with rows.jsonl."
            ),
        ),
    ],
    out: Out,
    config: Config = None,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Convert a published set, or readers' feedback, to documents and questions or to training rows.

    `feedback` imports the entries that `modegraph serve --feedback` stored: those with consent become the datasets preferences
    and relevance in --out. `reading` makes rows of questions over passages, with the settings of --config and --set. `support`
    makes claims from sentences that people labelled, for `train verifier --set real=FOLDER`; the card names the licences.
    """
    from data_synth.dataset.public_sets import multiple_choice, pubmedqa, read_items
    from data_synth.dataset.write import MAKER, SUMMARY, check_folder, stated_origin
    from data_synth.relevance.relevance_form import CORPUS
    from graph.shared.jsonl import write_json, write_jsonl

    if kind not in SETS:
        raise UserError(f"set {kind!r}", f"one of {', '.join(SETS)}", "choose one of these")
    if kind != READING and (config or settings):
        found = f"data import {kind} with {'--config' if config else '--set'}"
        raise UserError(found, f"no --config or --set: only {READING} has settings", "leave it out")
    if kind == FEEDBACK:
        show_feedback(file, out, as_json)
        return
    if kind in (READING, SUPPORT, QA_FEEDBACK):
        check_folder(out)
        import_rows(kind, file, out, config, settings, as_json)
        return
    check_folder(out, "questions")
    pairs = list(read_items(file, pubmedqa)) if kind == "pubmedqa" else []
    questions = [question for _, question in pairs] or list(read_items(file, multiple_choice))
    if not questions:
        raise UserError(f"{file}: no rows", f"questions of {kind}", "check the file")
    out.mkdir(parents=True, exist_ok=True)
    rows = {"questions": write_jsonl(out / "questions.jsonl", questions)}
    if pairs:
        rows["documents"] = write_jsonl(out / CORPUS, (document for document, _ in pairs))
    elif stated_origin(out).get("Imported from") == "pubmedqa":
        (out / CORPUS).unlink(missing_ok=True)
    write_json(out / SUMMARY, {"made_by": MAKER, "origin": {"Imported from": kind}, **rows})
    if as_json:
        print_json({"out": str(out), **rows})
    else:
        print(", ".join(f"{count:,} {what}" for what, count in rows.items()) + f" in {out}")
        corpus = f"…/{CORPUS}" if pairs else "DOCUMENTS"
        say(f"next: modegraph index {corpus}, then modegraph synth preferences INDEX --questions …")


def import_rows(
    kind: str, file: Path, out: Path, config: Path | None, settings: list[str] | None, as_json: bool
) -> None:
    """Write the training rows of a set; exit with 1 if most were dropped."""
    from dataclasses import replace

    from data_synth.claims.claims import LABELLED_CLAIMS
    from data_synth.dataset.public_sets import qa_feedback, read_items, support_claims, support_origin, support_sets
    from data_synth.dataset.write import write_or_preview
    from data_synth.reading.reading_form import READING as READING_ROWS
    from data_synth.reading.reading_rows import ImportSettings, rows_of_sets
    from data_synth.responses.rewards import RESPONSES
    from graph.config import load_settings

    rows: Iterable[Any]
    form: Form[Any]
    if kind == READING:
        rows, form = rows_of_sets(file, load_settings(ImportSettings, config, settings or ())), READING_ROWS
        origin = {"Imported from": file.name}
    elif kind == SUPPORT:
        files = support_sets(file)
        rows, form, origin = support_claims(files), LABELLED_CLAIMS, support_origin(files)
    else:
        rows, form, origin = read_items(file, qa_feedback), RESPONSES, {"Imported from": "QA-Feedback"}
    if not write_or_preview(rows, replace(form, made_by=f"data import {kind}"), origin, out, None, as_json):
        raise typer.Exit(1)


def describe_validation(file: Path, validation: "Validation") -> "Iterator[str]":
    """Lines for one file: its form, how many rows are good, and the first bad rows."""
    good = validation.rows - len(validation.bad)
    yield f"{file}: {validation.form}, {good:,} of {validation.rows:,} rows are good ({validation.share_good:.1%})"
    for row in validation.bad[:MAX_SHOWN_ROWS]:
        yield f"line {row.line} ({row.id or 'no id'}): {'; '.join(row.problems)}"
    if len(validation.bad) > MAX_SHOWN_ROWS:
        yield f"… and {len(validation.bad) - MAX_SHOWN_ROWS:,} more (--json lists all)"
    if validation.bad:
        yield "remedy: remove or fix these rows, or make them again with `modegraph synth`"


def show_feedback(index: Path, out: Path, as_json: bool) -> None:
    """Write the feedback of an index as training data and print a summary of each dataset; exit with 1 if no row was written."""
    from dataclasses import asdict

    from data_synth.dataset.write import show_summary
    from data_synth.feedback import import_feedback
    from graph.index.index import open_index

    summaries = import_feedback(open_index(index), out)
    if as_json:
        print_json({"out": str(out), **{name: asdict(summary) for name, summary in summaries.items()}})
    else:
        print("\n\n".join(show_summary(summary, out / name) for name, summary in summaries.items()))
    if not any(summary.rows for summary in summaries.values()):
        raise typer.Exit(1)


def split(
    questions: Questions,
    out: Out,
    train: Count = 0,
    dev: Count = 0,
    test: Count = 0,
    seed: Seed = 0,
    anew: Annotated[bool, option("--anew", INPUT, "Ignore the splits stated in the file.")] = False,
    corpus: Corpus = None,
    as_json: AsJson = False,
) -> None:
    """Divide questions into train, dev and test, by the hash of their ids.

    Remaining questions are left out. Splits stated in the file are respected: test questions go only to test, train and dev
    questions never to test.
    Numbered gold sentences become quotes, from which `synth preferences` composes reasoning.
    """
    from data_synth.dataset.split_join import split_questions
    from graph.documents.questions import question_files
    from graph.shared.jsonl import write_jsonl

    if out.is_dir() or out.resolve() in [file.resolve() for file in question_files(questions)]:
        found = f"--out {out}: {'a folder' if out.is_dir() else 'the file of --questions'}"
        raise UserError(found, "a new file", "choose another --out")
    counts = {"train": train, "dev": dev, "test": test}
    rows = split_questions(questions, corpus or corpus_of(questions), counts, seed, anew)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(out, rows)
    if as_json:
        print_json({"out": str(out), **counts})
    else:
        print(", ".join(f"{count:,} {name}" for name, count in counts.items()) + f" questions in {out}")


def join(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of training data of one kind.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Join folders of training data of one kind; every row keeps its split."""
    from dataclasses import replace

    from data_synth.dataset.split_join import join_rows, joined_origin
    from data_synth.dataset.write import check_folder, write_or_preview

    check_folder(out)
    form, rows = join_rows(folders)
    origin = joined_origin(folders, form)
    write_or_preview(rows, replace(form, made_by="data join"), origin, out, None, as_json)

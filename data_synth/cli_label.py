"""`modegraph synth reading`, `relevance`, `route` and `claims`: the commands that label what an index and its questions hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.shared.cli_app import INPUT, MODEL, OUTPUT, RETRIEVAL, Command, command
from graph.shared.cli_options import (
    SPEC,
    AsJson,
    Config,
    Corpus,
    IndexFolder,
    Modes,
    Preview,
    Questions,
    Seed,
    Set,
    SomeModel,
    SomeOut,
    Splits,
    Tolerance,
)
from graph.shared.console import track

if TYPE_CHECKING:
    from graph.types import OpenModel


def register_reading(synth: typer.Typer) -> None:
    """Add `reading` to the commands of `synth`."""

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

        Gold passages, those that hold a question's evidence, stand among others of the same document and of BM25's first; for
        a share of the rows one is missing, and the answer is "not in the documents". Data for `train sft`.
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
        if not write_or_preview(
            rows, READING, {"Index": index.name, "Questions": questions.name}, out, preview, as_json
        ):
            raise typer.Exit(1)


Beside = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=INPUT,
        help="Relevance data to train with together: no question or passage of another split there is used. Repeatable.",
    ),
]
SplitBy = Annotated[
    Literal["passages", "questions"],
    typer.Option(
        metavar="WHAT",
        rich_help_panel=INPUT,
        help="Splits share no passages and no questions, or with `questions` no questions only, for facts that all questions draw on.",
    ),
]
Negatives = Annotated[
    int,
    typer.Option(metavar="N", min=0, rich_help_panel=RETRIEVAL, help="Hard negatives to search out for each question."),
]
DistilFrom = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", rich_help_panel=MODEL, help=f"Language model that labels in place of the gold: {SPEC}."
    ),
]


def register_relevance(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `relevance` to the commands of `synth`."""

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

        The questions' gold passages and sentences tell which are relevant, or with --distil-from a model does. The seed splits
        the rows into train, dev and test.
        """
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.relevance.gold import CORPUS, check_sources, read_gold_questions, with_sentences
        from data_synth.relevance.relevance_form import RELEVANCE, SPLIT_BY
        from data_synth.relevance.relevance_rows import relevance_rows
        from data_synth.relevance.split import exclude_overlap, keep_earlier_splits, make_split, read_earlier_splits
        from graph.index.index import open_index

        held = read_earlier_splits(beside or [])
        asked = keep_earlier_splits(read_gold_questions(questions), held.questions)
        if distil_from is None:
            asked = with_sentences(asked, corpus or questions.parent / CORPUS)
        opened = open_index(index)
        check_sources(asked, opened.sources())
        ledger = ledger_of(out, preview)
        model = open_model(distil_from, ledger) if distil_from else None
        origin = {
            "Index": index.name,
            "Encoder": opened.encoder_source.fingerprint,
            "Questions": questions.name,
            "Labelled by": model.name if model else "the questions' gold",
            "Hard negatives for a question": str(negatives),
            "Seed": str(seed),
            SPLIT_BY: split_by,
            "Kept apart from": ", ".join(folder.name for folder in beside or []) or "no other dataset",
        }
        split = exclude_overlap(make_split(opened, asked, seed, split_by), opened, held.propositions)
        each = asked if preview is not None else track(asked, "questions", len(asked))
        rows = relevance_rows(opened, each, split, negatives, model)
        if not write_or_preview(rows, RELEVANCE, origin, out, preview, as_json):
            raise typer.Exit(1)


ROUTED_MODES = ["dense", "hierarchy", "lexical", "hybrid", "hops", "paths", "local"]
"""The modes that are run when no others are named."""


def register_route(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `route` to the commands of `synth`."""

    @synth.command(cls=command(several=("--modes",)))
    def route(
        index: IndexFolder,
        questions: Questions,
        modes: Modes = ROUTED_MODES,
        tolerance: Tolerance = 0.01,
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Label questions with the cheapest mode that is good enough: data for `train router`.

        Runs every mode on every question and keeps what each finds and costs. --model serves the modes that can ask one; the
        seed splits the rows into train, dev and test.
        """
        from data_synth.contexts import check_gold
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.relevance.gold import read_gold_questions
        from data_synth.route import ROUTE, parse_modes, route_rows
        from graph.index.index import open_index

        chosen = parse_modes(modes)
        asked = read_gold_questions(questions)[:preview]
        opened = open_index(index)
        check_gold((each.question for each in asked), frozenset(opened.sources()))
        ledger = ledger_of(out, preview)
        opened_model = open_model(model, ledger) if model else None
        origin = {
            "Index": index.name,
            "Encoder": opened.encoder_source.fingerprint,
            "Questions": questions.name,
            "Modes": ", ".join(chosen),
            "Tolerance": f"{tolerance:g}",
            "Model": opened_model.name if opened_model else "none",
            "Seed": str(seed),
        }
        rows = route_rows(opened, asked, chosen, tolerance, seed, opened_model, track)
        if not write_or_preview(rows, ROUTE, origin, out, preview, as_json):
            raise typer.Exit(1)


Rounds = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=OUTPUT,
        help="Claims to make of a passage, and as many broken ones, at most.",
    ),
]


def register_claims(synth: typer.Typer) -> None:
    """Add `claims` to the commands of `synth`."""

    @synth.command(cls=Command)
    def claims(
        index: IndexFolder,
        rounds: Rounds = 4,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make sentences that passages support, and broken ones: data for `train verifier`.

        Rules say a sentence otherwise, then change a name, a number, a negation, who did what, or a word for its opposite.
        """
        from data_synth.claims.claims import CLAIMS, claim_rows, passages_of
        from data_synth.dataset.write import ledger_of, write_or_preview
        from graph.index.index import open_index

        ledger_of(out, preview)
        opened = open_index(index)
        origin = {"Index": index.name, "Rounds": str(rounds), "Seed": str(seed)}
        if not write_or_preview(claim_rows(passages_of(opened), rounds, seed), CLAIMS, origin, out, preview, as_json):
            raise typer.Exit(1)

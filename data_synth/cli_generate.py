"""`modegraph synth questions`, `preferences` and `responses`: the commands that write texts, by rules or with a language model."""

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import MODEL, OUTPUT, Command, option
from graph.shared.cli_options import (
    SPEC,
    AsJson,
    ContextSizes,
    IndexFolder,
    Judge,
    Limit,
    MaxAnswerTokens,
    MaxContextTokens,
    ModeName,
    Preview,
    Questions,
    Samples,
    Seed,
    SomeOut,
    Splits,
    Strict,
    TopK,
    Verifier,
    Writer,
    Writers,
)
from graph.shared.console import track
from graph.shared.modes import DEFAULT_MODE

if TYPE_CHECKING:
    from data_synth.dataset.write import Summary
    from graph.types import OpenModel


Hops = Annotated[
    list[int] | None,
    option(
        "N", OUTPUT, "Number of documents that an answer needs; 1, 2, 3 and 4 by default. Repeatable.", min=1, max=4
    ),
]
Count = Annotated[
    int | None,
    option(
        "N",
        OUTPUT,
        "Questions to make; if fewer are made, the command exits with 1. Default: up to 500, of which min(500, number of documents) are required.",
        min=1,
    ),
]
Unanswerable = Annotated[
    float,
    option(
        "SHARE",
        OUTPUT,
        "Share of questions that the documents do not answer, each similar to one that they answer.",
        min=0.0,
        max=0.5,
    ),
]
MAX_QUESTIONS = 500


def register_questions(synth: typer.Typer, open_model: "OpenModel") -> None:
    @synth.command(cls=Command)
    def questions(
        index: IndexFolder,
        mode: ModeName = DEFAULT_MODE,
        writer: Writer = None,
        judge: Judge = None,
        seed: Seed = 0,
        hops: Hops = None,
        count: Count = None,
        unanswerable: Unanswerable = 0.0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make questions about one document or several, with their answers and the passages that the answers need.

        Rules fill templates with the index's sentences and tables, unless --writer names a model. A model's question about one document is used
        only if --mode finds this document first, a question about several only if the passages found contain most words of its answer; with
        --judge, only if that model also gives the same answer from the passages. All questions about a document are in one split.
        """
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.questions.make import QuestionSpec, question_rows, shortage
        from data_synth.questions.question_form import BY_TEMPLATES, QUESTIONS
        from data_synth.rows import separate_dropped
        from graph.config import parse_settings
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings
        from graph.shared.console import say

        if judge and not writer:
            expected = "a model that writes the questions to judge"
            raise UserError(f"--judge {judge} without --writer", expected, "give --writer")
        if unanswerable and writer:
            found = f"--unanswerable {unanswerable:g} with --writer"
            raise UserError(found, "questions made by rules", "leave out one of them")
        settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": 10}, "synth questions")
        opened_index = open_index(index)
        ledger = ledger_of(out, preview)
        models = [open_model(spec, ledger) if spec else None for spec in (writer, judge)]
        limit, required = count or MAX_QUESTIONS, count or min(MAX_QUESTIONS, len(opened_index.sources()))
        spec = QuestionSpec(
            min(limit, preview or limit), tuple(dict.fromkeys(hops or (1, 2, 3, 4))), seed, unanswerable
        )
        origin = {
            "Index": index.absolute().name,
            "Written by": models[0].name if models[0] else BY_TEMPLATES,
            "Judged by": models[1].name if models[1] else "no model",
            "Questions checked by": f"retrieval of 10 excerpts by mode {settings.mode}"
            if writer
            else "the rules, from the index's sentences",
            "Hops": ", ".join(map(str, spec.hops)),
            "Share of unanswerable questions": f"{unanswerable:g}",
            "Seed": str(seed),
        }
        usable, dropped = separate_dropped(question_rows(opened_index, spec, models[0], models[1], settings))
        ok = write_or_preview([*usable, *dropped], QUESTIONS, origin, out, preview, as_json)
        problem = shortage(min(required, spec.count), len(usable), dropped, models[0].name if models[0] else None)
        if problem:
            say(f"modegraph: {problem}")
        if problem or not ok:
            raise typer.Exit(1)


class Shape(StrEnum):
    """The form of the texts of a row: lists of messages (chat) or strings (plain)."""

    chat = "chat"
    plain = "plain"


HardNegatives = Annotated[
    float,
    option(
        "SHARE",
        OUTPUT,
        "Share of pairs whose rejected side has reasoning too, wrong or unsupported; in the others, the rejected side is the bare answer.",
        min=0,
        max=1,
    ),
]
Format = Annotated[Shape, option("--format FORM", OUTPUT, "Rows of messages (chat) or text (plain).")]


def separation_warnings(summary: "Summary") -> list[str]:
    """A warning, with its remedy, if surface features alone distinguish the two sides of the pairs."""
    from data_synth.preferences.preference_form import separating_measures

    measures = separating_measures(summary.measures)
    remedy = "a model would learn these differences instead of the answers; use --preview 20 to see what differs"
    return [f"the sides differ in more than their answers ({'; '.join(measures)}): {remedy}"] if measures else []


def register_preferences(synth: typer.Typer, open_model: "OpenModel") -> None:
    @synth.command(cls=Command)
    def preferences(
        index: IndexFolder,
        questions: Questions,
        split: Splits = None,
        context_size: ContextSizes = None,
        mode: ModeName = DEFAULT_MODE,
        top_k: TopK = 5,
        writer: Writers = None,
        judge: Judge = None,
        hard_negatives: HardNegatives = 1.0,
        shape: Format = Shape.chat,
        strict: Strict = False,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
        limit: Limit = None,
        max_context_tokens: MaxContextTokens = None,
    ) -> None:
        """Make preference pairs: reasoning with the answer is chosen, wrong or unsupported reasoning rejected.

        Each question gets a pair for every context of 1 to --top-k passages, or of --context-size. Reasoning is composed from
        gold sentences unless --writer names a model; --judge then drops reasoning that the passages do not support. Where
        no passage is from a gold document or contains the answer, "not in the documents" is chosen. --limit samples questions by the seed.
        """
        from data_synth.contexts import QuestionSelection
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.preferences.preference_form import PLAIN_PREFERENCES, PREFERENCES
        from data_synth.preferences.preferences import PreferenceModels, preference_run
        from graph.config import parse_settings
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings

        values = {"mode": mode, "top_k": top_k, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth preferences")
        models = PreferenceModels(writer or [], judge, ledger_of(out, preview))
        selection = QuestionSelection(questions, split or [], limit, seed, context_size or [])
        rows, origin = preference_run(
            open_index(index), selection, settings, models, open_model, hard_negatives=hard_negatives, first=preview
        )
        form = PREFERENCES if shape is Shape.chat else PLAIN_PREFERENCES
        if not write_or_preview(rows, form, origin, out, preview, as_json, separation_warnings, strict):
            raise typer.Exit(1)


Policy = Annotated[
    list[str],
    option(
        "SPEC",
        MODEL,
        f"Model to sample from, such as the SFT run: {SPEC}; several openai: servers of one model share the calls. Repeatable.",
    ),
]
Temperature = Annotated[float, option("T", MODEL, "Sampling temperature.", min=0.05)]


def register_responses(synth: typer.Typer, open_model: "OpenModel") -> None:
    @synth.command(cls=Command)
    def responses(
        index: IndexFolder,
        questions: Questions,
        policy: Policy,
        split: Splits = None,
        context_size: ContextSizes = None,
        mode: ModeName = DEFAULT_MODE,
        top_k: TopK = 5,
        samples: Samples = 8,
        temperature: Temperature = 1.0,
        judge: Judge = None,
        verifier: Verifier = "",
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
        limit: Limit = None,
        max_context_tokens: MaxContextTokens = None,
        max_answer_tokens: MaxAnswerTokens = 256,
    ) -> None:
        """Sample K responses to each prompt from a model, and score them.

        Rewards are stored by component; --judge adds the judge's marks as another component. Prompts contain 1 to --top-k passages, or
        --context-size; responses cut off at --max-answer-tokens are left out; --limit samples questions by the seed.
        """
        from itertools import chain

        from data_synth.contexts import QuestionSelection
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.responses.responses import judge_responses, response_rows
        from data_synth.responses.rewards import RESPONSES
        from data_synth.rows import Sampling
        from graph.answer.support import open_verifier
        from graph.config import parse_settings
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings

        values = {"mode": mode, "top_k": top_k, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth responses")
        support_verifier = open_verifier(verifier)
        selection = QuestionSelection(questions, split or [], limit, seed, context_size or [])
        opened_index = open_index(index)
        distinct, duplicates = selection.read(opened_index, preview)
        ledger = ledger_of(out, preview)
        model = open_model(policy[0] if len(policy) == 1 else policy, ledger)
        judge_model = open_model(judge, ledger) if judge else None
        sampling = Sampling(samples, temperature, max_answer_tokens, seed)
        origin = {
            "Index": index.absolute().name,
            "Questions": selection.name,
            "Contexts": f"{selection.sizes_up_to(top_k)} excerpts by mode {settings.mode}",
            "Policy": model.name,
            "Sampling": f"{samples} responses per prompt at temperature {temperature:g}, up to {max_answer_tokens:,} tokens, seed {seed}",
            "Judge": judge_model.name if judge_model else "none",
            "Verifier": verifier or "the default",
        }
        marks_of = partial(judge_responses, model=judge_model) if judge_model else None
        rows = response_rows(
            opened_index, distinct, settings, model, sampling, selection.sizes, marks_of, support_verifier
        )
        if preview is None:
            # Count rows, not questions: questions are read in batches, before the model is called.
            rows = track(rows, "prompts", len(distinct) * selection.contexts_per_question(top_k))
        if not write_or_preview(chain(duplicates, rows), RESPONSES, origin, out, preview, as_json):
            raise typer.Exit(1)

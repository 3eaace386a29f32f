"""The commands that measure one part each: `modegraph eval retrieval`, `selector`, `reading`, `support`, `alignment` and `judge`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.errors import UserError
from graph.shared.cli_app import INPUT, MODEL, OUTPUT, RETRIEVAL, Command, command
from graph.shared.cli_options import (
    AsJson,
    Data,
    IndexFolder,
    Limit,
    MaxAnswerTokens,
    Model,
    Models,
    ModeName,
    Modes,
    Out,
    Questions,
    Reranker,
    Runs,
    Samples,
    Seed,
    Selector,
    SomeModel,
    SomeOut,
    SomeSplit,
    Split,
    TopK,
    Unit,
    Verifier,
    Where,
)
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.types import OpenModel


def add_retrieval(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `retrieval` to the commands of `eval`."""

    @commands.command(cls=command(several=("--modes", "--where")))
    def retrieval(
        index: IndexFolder,
        questions: Questions,
        modes: Modes,
        split: SomeSplit = None,
        top_k: TopK = 10,
        unit: Unit = "passages",
        where: Where = None,
        selector: Selector = "threshold",
        reranker: Reranker = "",
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
        limit: Limit = None,
    ) -> None:
        """Compare retrieval modes on questions with gold documents.

        Prints Recall, all-gold, MRR, nDCG and seconds a query, with intervals; --out saves figures, plot and rankings.
        """
        from eval.retrieval import (
            LEDGER,
            evaluate_retrieval,
            reachable_questions,
            retrieval_json,
            retrieval_table,
            select_questions,
            write_retrieval,
        )
        from eval.tables import as_text
        from graph.config import parse_settings
        from graph.documents.questions import read_questions
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings
        from graph.retrieve.retrieve import retrieve

        common = {"top_k": top_k, "unit": unit, "where": where or (), "selector": selector}
        common |= {"reranker": reranker}
        settings = {
            mode: parse_settings(RetrieveSettings, {"mode": mode, **common}, "eval retrieval") for mode in modes
        }
        opened_index = open_index(index)
        selected = select_questions(read_questions(questions), split, opened_index.sources())
        allowed = opened_index.where(settings[modes[0]].conditions)
        selected = (reachable_questions(selected, allowed.sources()) if where else selected)[:limit]
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None
        retrievers = {
            mode: partial(retrieve, opened_index, settings=each, model=helper) for mode, each in settings.items()
        }
        report = evaluate_retrieval(selected, retrievers, top_k, seed)
        if out is not None:
            write_retrieval(report, out)
        print_json(retrieval_json(report)) if as_json else print(as_text(retrieval_table(report)))


Selectors = Annotated[
    list[str],
    typer.Option(
        "--selectors",
        metavar="NAME",
        rich_help_panel=RETRIEVAL,
        help="Selectors to compare (--selectors threshold FOLDER); the first is the baseline. Repeatable.",
    ),
]


def add_selector(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `selector` to the commands of `eval`."""

    @commands.command(cls=command(several=("--selectors",)))
    def selector(
        index: IndexFolder,
        questions: Questions,
        selectors: Selectors,
        split: SomeSplit = None,
        mode: ModeName = "local",
        top_k: TopK = 10,
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
        limit: Limit = None,
    ) -> None:
        """Compare selectors in mode local or global.

        Prints quality, model calls, tokens and seconds, with intervals of the differences. --model is for the selector llm.
        """
        check_selectors(selectors, model, mode)
        from eval.retrieval import LEDGER, Retrieve, select_questions
        from eval.selector import compare_selectors, read_with_sentences, selector_json, selector_table, write_selectors
        from eval.tables import as_text
        from graph.config import parse_settings
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings
        from graph.retrieve.retrieve import retrieve

        settings = {
            name: parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k, "selector": name}, "eval selector")
            for name in selectors
        }
        opened_index = open_index(index)
        selected = select_questions(read_with_sentences(questions), split, opened_index.sources())[:limit]
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None

        def retrieve_with(name: str) -> Retrieve:
            return partial(retrieve, opened_index, settings=settings[name], model=helper if name == "llm" else None)

        report = compare_selectors(opened_index, selected, selectors, retrieve_with, helper, top_k, seed)
        if out is not None:
            write_selectors(report, mode, out)
        if as_json:
            print_json(selector_json(report, mode))
            return
        table = selector_table(report, mode)
        print(f"{as_text(table)}\n\n{table.note}")


def check_selectors(selectors: list[str], model: str | None, mode: str) -> None:
    """UserError for a mode that selects nothing, for a selector named twice, and for llm without a model or a model without llm."""
    if mode not in ("local", "global"):
        raise UserError(f"--mode {mode}", "local or global, which select propositions", "change the mode")
    if len(set(selectors)) < len(selectors):
        raise UserError(f"--selectors {' '.join(selectors)}", "each selector once", "drop the repetition")
    if ("llm" in selectors) != (model is not None):
        found = "llm without --model" if model is None else f"--model {model} without the selector llm"
        raise UserError(found, "both or neither: only llm uses a model", "give both, or drop it")


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A reading set: corpus.jsonl and questions.jsonl (answers empty: unanswerable)."
    ),
]
OverIndex = Annotated[
    Path | None,
    typer.Option(
        "--index",
        metavar="INDEX",
        rich_help_panel=INPUT,
        help="Read passages retrieved from this index instead of the gold ones.",
    ),
]
DistractorCount = Annotated[
    int,
    typer.Option(
        "--distractors", metavar="N", min=0, rich_help_panel=INPUT, help="Other passages to mix with the gold ones."
    ),
]
NoPassages = Annotated[
    bool,
    typer.Option(
        "--no-passages",
        metavar="",
        rich_help_panel=INPUT,
        help="Ask without passages, to measure what a model knows from training.",
    ),
]
FormOption = Annotated[
    Literal["cited", "quoted", "reasoned"],
    typer.Option(
        "--form", metavar="NAME", rich_help_panel=INPUT, help="Form of the answers: cited, quoted or reasoned."
    ),
]


def add_reading(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `reading` to the commands of `eval`."""

    @commands.command(cls=Command)
    def reading(
        folder: Folder,
        models: Models,
        split: SomeSplit = None,
        distractors: DistractorCount = 3,
        index: OverIndex = None,
        mode: ModeName = "auto",
        top_k: TopK = 5,
        no_passages: NoPassages = False,
        form: FormOption = "cited",
        limit: Limit = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure how well models read: greedy answers by exact match, F1, refusals and citations.

        Questions are drawn by the hash of their ids; a constant answer is listed with the models. --out saves every answer.
        """
        from data_synth.reading.sets import read_set
        from eval.reading import (
            CONSTANT,
            ReadingTask,
            answer_all,
            answers_json,
            constant_answers,
            over_gold,
            over_index,
            pick_questions,
            reading_figures,
            reading_table,
        )
        from eval.reading import reading_json as figures_json
        from eval.tables import as_text
        from graph.shared.jsonl import write_jsonl

        source = read_set(folder)
        questions = pick_questions(source, split, limit, seed)
        if no_passages:
            tasks = [ReadingTask(question, ()) for question in questions]
        elif index is not None:
            from graph.config import parse_settings
            from graph.index.index import open_index
            from graph.retrieve.parts.query import RetrieveSettings

            settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k}, "eval reading")
            tasks = over_index(open_index(index), questions, settings)
        else:
            tasks = over_gold(source, questions, distractors, seed)
        answers = {CONSTANT: constant_answers(tasks)}
        for spec in models:
            say(f"{spec}: {len(tasks):,} questions of {source.name}")
            model = open_model(spec, None)
            answers[spec] = answer_all(model, tasks, form)
        figures = {name: reading_figures(each, seed) for name, each in answers.items()}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            rows = [row for name, each in answers.items() for row in answers_json(name, each)]
            write_jsonl(out / "answers.jsonl", rows)
        print_json(figures_json(figures)) if as_json else print(as_text(reading_table(source.name, figures)))


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Labelled sentences: rows of passages, sentence, question or null, supported (true or false).",
    ),
]


def add_support(commands: typer.Typer) -> None:
    """Add `support` to the commands of `eval`."""

    @commands.command(cls=Command)
    def support(
        file: File,
        verifier: Verifier = "",
        split: SomeSplit = None,
        limit: Limit = None,
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        """Measure how well a verifier separates supported sentences from unsupported ones.

        Prints AUC with its interval, the shares that it marks, and milliseconds, next to plain overlap of words and of stems.
        """
        from eval.support import measure_support, read_support, support_json, support_table
        from eval.tables import as_text
        from graph.answer.verifier import open_verifier

        rows = read_support(file, split, limit, seed)
        figures = measure_support(rows, open_verifier(verifier), seed)
        print_json(support_json(figures)) if as_json else print(as_text(support_table(str(file), figures)))


class Sampler(StrEnum):
    """The engine that draws samples: transformers in this process, or a private vLLM server."""

    hf = "hf"
    vllm = "vllm"


SamplerName = Annotated[
    Sampler, typer.Option(metavar="ENGINE", rich_help_panel=MODEL, help="Engine that draws the samples: hf or vllm.")
]
MeasuredFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=OUTPUT,
        help="Folder that caches measured figures, for this and other commands; default: below --out.",
    ),
]
Rewards = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMPONENT=WEIGHT",
        rich_help_panel=MODEL,
        help="Component to reward, with its weight; default: the reward that the runs were trained for. Repeatable.",
    ),
]
EqualWithin = Annotated[
    float | None,
    typer.Option(
        metavar="REWARD",
        min=0,
        rich_help_panel=MODEL,
        help="Test whether systems differ by less than this: two one-sided tests over seeds.",
    ),
]


def add_alignment(commands: typer.Typer) -> None:
    """Add `alignment` to the commands of `eval`."""

    @commands.command(cls=command(several=("--runs", "--reward")))
    def alignment(
        runs: Runs,
        data: Data,
        split: Split = "test",
        samples: Samples = 16,
        seed: Seed = 0,
        out: Out = Path("alignment"),
        as_json: AsJson = False,
        sampler: SamplerName = Sampler.hf,
        measured: MeasuredFolder = None,
        reward: Rewards = None,
        equal_within: EqualWithin = None,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 128,
    ) -> None:
        """Compare preference runs by expected reward at equal KL to the reference, seed by seed.

        Samples the prompts of --data (scored responses) and replaces the report in --out; cached measurements are reused.
        Longer samples are cut. Refuses prompts that a run was trained on (except for the split `train`, which flatters the runs), a
        seed that one system lacks, and a reward with a component that cannot be measured. --sampler vllm is much faster.
        """
        from eval.alignment.frontier import align_runs, alignment_json, tables_as_text, write_alignment
        from eval.alignment.sample import SamplingSettings
        from train.model.load import Precision, load_policy
        from train.run.record import read_run

        records = [read_run(folder) for folder in runs]
        all_half = all(one.settings.get("precision") == "bfloat16" for one in records)
        precision: Precision = "bfloat16" if all_half else "float32"
        sampling = SamplingSettings(samples, max_answer_tokens, seed)
        load = partial(load_policy, precision=precision)
        if sampler is Sampler.vllm:
            from eval.alignment.sample_by_vllm import draw_by_vllm as draw
        else:
            from eval.alignment.sample import draw_here as draw
        rewards = reward_weights(reward or ())
        report = align_runs(
            runs, data, split, limit, sampling, load, draw, measured or out / "measured", rewards, equal_within
        )
        write_alignment(report, out)
        if as_json:
            print_json(alignment_json(report))
            return
        print(tables_as_text(report))


def reward_weights(options: Sequence[str]) -> dict[str, float] | None:
    """The weights of --reward options, None without any; UserError for one that is not COMPONENT=WEIGHT.

    >>> reward_weights(["correct=1", "format=.25"])
    {'correct': 1.0, 'format': 0.25}
    """
    weights = {}
    for option in options:
        component, _, weight = option.partition("=")
        try:
            weights[component] = float(weight)
        except ValueError:
            raise UserError(f"--reward {option}", "COMPONENT=WEIGHT, such as correct=1", "fix the option") from None
    return weights or None


AnswersA = Annotated[
    Path, typer.Argument(metavar="A.jsonl", help='Answers of one system, lines of {"id", "question", "answer"}.')
]
AnswersB = Annotated[Path, typer.Argument(metavar="B.jsonl", help="Answers of the other system to the same questions.")]


def add_judge(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `judge` to the commands of `eval`."""

    @commands.command(cls=Command)
    def judge(
        answers_a: AnswersA,
        answers_b: AnswersB,
        model: Model,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Have a language model compare the answers of two systems, in both orders.

        Prints win rates, ties, agreement, and position and length bias. --out saves every verdict, so that a later run can resume.
        Exits with 1 if any verdict is invalid.
        """
        from eval.judge import (
            judge_json,
            judge_pairs,
            judge_summary,
            judge_table,
            pair_up,
            read_answers,
            score_judgements,
            write_judgements,
        )
        from eval.retrieval import LEDGER
        from eval.tables import as_text

        pairs = pair_up(read_answers(answers_a), read_answers(answers_b))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        judgements = judge_pairs(pairs, open_model(model, out / LEDGER if out is not None else None))
        results = score_judgements(judgements, seed)
        summary = judge_json(results, judgements, answers_a.stem, answers_b.stem)
        if out is not None:
            write_judgements(judgements, summary, out)
            say(f"wrote {out / 'judge.json'} and {out / 'judgements.jsonl'}")
        if as_json:
            print_json(summary)
        else:
            print(as_text(judge_table(results, answers_a.stem, answers_b.stem)))
            print("\n" + "\n".join(judge_summary(results, answers_a.stem, answers_b.stem)))
        if any(one.invalid for one in results.values()):
            raise typer.Exit(1)

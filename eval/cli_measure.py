"""The commands that measure one part each: `modegraph eval retrieval`, `reading`, `support`, `alignment` and `judge`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.errors import UserError
from graph.shared.cli_app import INPUT, MODEL, OUTPUT, RETRIEVAL, Command, command, option
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
    SomeModel,
    SomeOut,
    SomeSplit,
    SomeVerifier,
    Split,
    TopK,
    Unit,
    Verifier,
    Where,
)
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.types import OpenModel


Selectors = Annotated[
    list[str] | None,
    option(
        "--selectors NAME",
        RETRIEVAL,
        "Selectors to compare: threshold (the default), llm (calls --model), none, or trained ones, as folders or hub names; "
        "several only with --modes local or global; the first is the baseline. Repeatable.",
    ),
]


def check_selectors(selectors: Sequence[str], modes: Sequence[str], model: str | None) -> None:
    """UserError if a selector is repeated, if several come with several modes or with a mode other than local and global, or if llm comes without a model."""
    if len(set(selectors)) < len(selectors):
        raise UserError(f"--selectors {' '.join(selectors)}", "each selector once", "remove the repetition")
    if len(selectors) > 1 and (len(modes) > 1 or modes[0] not in ("local", "global")):
        found = f"--modes {' '.join(modes)} with {len(selectors)} selectors"
        expected = "one of the modes local and global, which select propositions"
        raise UserError(found, expected, "give --modes local or --modes global")
    if "llm" in selectors and model is None:
        raise UserError("--selectors llm without --model", "a model for the selector llm to call", "add --model")


def add_retrieval(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `retrieval` to the commands of `eval`."""

    @commands.command(cls=command(several=("--modes", "--selectors", "--where")))
    def retrieval(
        index: IndexFolder,
        questions: Questions,
        modes: Modes,
        split: SomeSplit = None,
        top_k: TopK = 10,
        unit: Unit = "passages",
        where: Where = None,
        selectors: Selectors = None,
        reranker: Reranker = "",
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
        limit: Limit = None,
    ) -> None:
        """Compare retrieval modes, or selectors in one mode, on questions with gold documents.

        Prints Recall, all-gold, MRR, nDCG and the cost of a query, and differences in Recall@5 with their intervals; --out saves the
        metrics, a plot and the rankings. Among several selectors, only llm calls --model.
        """
        chosen = selectors or ["threshold"]
        check_selectors(chosen, modes, model)
        from eval.retrieval import (
            LEDGER,
            evaluate_retrieval,
            measure_selection,
            reachable_questions,
            read_with_sentences,
            retrieval_json,
            retrieval_table,
            select_questions,
            systems_of,
            warm_up,
            write_retrieval,
        )
        from eval.tables import as_text
        from graph.documents.questions import read_questions
        from graph.index.index import open_index
        from graph.retrieve.retrieve import retrieve

        common = {"top_k": top_k, "unit": unit, "where": where or (), "reranker": reranker}
        several = len(chosen) > 1
        systems = systems_of(modes, chosen, common)
        opened_index = open_index(index)
        read = read_with_sentences if several else read_questions
        selected = select_questions(read(questions), split, opened_index.sources())
        allowed = opened_index.where(next(iter(systems.values())).conditions)
        selected = (reachable_questions(selected, allowed.sources()) if where else selected)[:limit]
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None
        retrievers = {}
        for name, each in systems.items():
            caller = helper if each.selector == "llm" or not several else None
            retrievers[name] = partial(retrieve, opened_index, settings=each, model=caller)
            warm_up(opened_index, selected[0].text, each)
        report = evaluate_retrieval(selected, retrievers, top_k, seed)
        if several:
            report = replace(report, selection=measure_selection(opened_index, selected, chosen, helper))
        if out is not None:
            write_retrieval(report, out)
        table = retrieval_table(report)
        print_json(retrieval_json(report)) if as_json else print(f"{as_text(table)}\n\n{table.note}")


Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        help="A reading set: corpus.jsonl and questions.jsonl (a question without answers is unanswerable).",
    ),
]
OverIndex = Annotated[
    Path | None, option("--index INDEX", INPUT, "Read passages retrieved from this index instead of the gold ones.")
]
DistractorCount = Annotated[int, option("--distractors N", INPUT, "Other passages to mix with the gold ones.", min=0)]
NoPassages = Annotated[
    bool, option("--no-passages", INPUT, "Ask without passages, to measure what a model knows from training.")
]
FormOption = Annotated[
    Literal["cited", "quoted", "reasoned"],
    option("--form NAME", INPUT, "Form of the answers: cited, quoted or reasoned."),
]


def check_passages(context: typer.Context, no_passages: bool, index: Path | None) -> None:
    """UserError for an option about the passages that is given on the command line but would have no effect."""
    unused, why, remedy = ["mode", "top_k"], "without --index", "add --index, or leave it out"
    if no_passages:
        unused, why, remedy = ["index", "distractors", *unused], "with --no-passages", "leave out one of the two"
    elif index is not None:
        unused, why, remedy = ["distractors"], "with --index", "leave out one of the two"
    for name in unused:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"--{name.replace('_', '-')} {why}: it would have no effect", "", remedy)


def add_reading(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `reading` to the commands of `eval`."""

    @commands.command(cls=Command)
    def reading(
        context: typer.Context,
        folder: Folder,
        models: Models,
        split: SomeSplit = None,
        distractors: DistractorCount = 3,
        index: OverIndex = None,
        mode: ModeName = "auto",
        top_k: TopK = 5,
        no_passages: NoPassages = False,
        form: FormOption = "cited",
        verifier: SomeVerifier = None,
        limit: Limit = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure how well models read: greedy answers, scored by exact match, F1, refusals and citations.

        Question ids and --seed decide which questions --limit selects; a baseline that always gives the same answer is listed with the models.
        With --verifier, each model is listed again with its unsupported answers counted as refusals ("MODEL, checked"). --out saves every answer.
        """
        check_passages(context, no_passages, index)
        from data_synth.reading.sets import read_set
        from eval import reading as measured
        from eval.tables import as_text
        from graph.answer.support import open_verifier
        from graph.shared.jsonl import write_jsonl

        checker = None if verifier is None else open_verifier(verifier)
        source = read_set(folder)
        questions = measured.pick_questions(source, split, limit, seed)
        if no_passages:
            tasks = [measured.ReadingTask(question, ()) for question in questions]
        elif index is not None:
            from graph.config import parse_settings
            from graph.index.index import open_index
            from graph.retrieve.parts.query import RetrieveSettings

            settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k}, "eval reading")
            tasks = measured.retrieved_tasks(open_index(index), questions, settings)
        else:
            tasks = measured.gold_tasks(source, questions, distractors, seed)
            measured.report_left_out(source, questions, tasks)
        answers = {measured.CONSTANT: measured.constant_answers(tasks)}
        for spec in models:
            say(f"{spec}: {len(tasks):,} questions of {source.name}")
            model = open_model(spec, None)
            answers[spec] = measured.answer_all(model, tasks, form, no_passages)
            if checker is not None:
                answers[f"{spec}, checked"] = measured.drop_unsupported(answers[spec], checker, form)
        figures = {name: measured.reading_figures(each, seed) for name, each in answers.items()}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            rows = [row for name, each in answers.items() for row in measured.answers_json(name, each)]
            write_jsonl(out / "answers.jsonl", rows)
        table = measured.reading_table(source.name, figures)
        print_json(measured.reading_json(figures)) if as_json else print(as_text(table))


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Labelled sentences: rows with passages, sentence, question (or null) and supported (true or false).",
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

        Prints AUC with its interval, the shares of supported and of unsupported sentences that the verifier marks as unsupported, and the milliseconds per
        sentence, compared with the plain overlap of words and of stems.
        """
        from eval.support import measure_support, read_support, support_json, support_table
        from eval.tables import as_text
        from graph.answer.support import open_verifier

        rows = read_support(file, split, limit, seed)
        figures = measure_support(rows, open_verifier(verifier), seed)
        print_json(support_json(figures)) if as_json else print(as_text(support_table(str(file), figures)))


Sampler = Annotated[Literal["hf", "vllm"], option("ENGINE", MODEL, "Engine that draws the samples: hf or vllm.")]
MeasuredFolder = Annotated[
    Path | None,
    option("FOLDER", OUTPUT, "Folder for cached measurements, shared with other commands; default: below --out."),
]
Rewards = Annotated[
    list[str] | None,
    option(
        "COMPONENT=WEIGHT",
        MODEL,
        "Component to reward, with its weight; default: the reward that the runs were trained for, or correct=1 for runs on pairs. Repeatable.",
    ),
]
EqualWithin = Annotated[
    float | None,
    option("REWARD", MODEL, "Test whether systems differ by less than this: two one-sided tests over seeds.", min=0),
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
        sampler: Sampler = "hf",
        measured: MeasuredFolder = None,
        reward: Rewards = None,
        equal_within: EqualWithin = None,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 128,
    ) -> None:
        """Compare preference runs by expected reward at equal KL to the reference, seed by seed.

        Samples responses to the prompts of --data (scored responses), cut at --max-answer-tokens, and replaces the report in --out;
        cached measurements are reused. Refuses prompts and questions that a run was trained on (except for the split `train`, which flatters the runs), a
        seed that one system lacks, and a reward with a component that cannot be measured. --sampler vllm is much faster.
        """
        from eval.alignment.frontier import align_runs, alignment_json, tables_as_text, write_alignment
        from eval.alignment.measure import common_precision
        from eval.alignment.sample import SamplingSettings
        from train.model.load import load_policy
        from train.run.record import read_run

        sampling = SamplingSettings(samples, max_answer_tokens, seed)
        load = partial(load_policy, precision=common_precision([read_run(folder) for folder in runs]))
        if sampler == "vllm":
            from eval.alignment.sample import draw_by_vllm as draw
        else:
            from eval.alignment.sample import draw_by_transformers as draw
        rewards = reward_weights(reward or ())
        report = align_runs(
            runs, data, split, limit, sampling, load, draw, measured or out / "measured", rewards, equal_within
        )
        write_alignment(report, out)
        print_json(alignment_json(report)) if as_json else print(tables_as_text(report))


def reward_weights(options: Sequence[str]) -> dict[str, float] | None:
    """The weights of --reward options, None without any; UserError for one that is not COMPONENT=WEIGHT, and if all are 0.

    >>> reward_weights(["correct=1", "format=.25"])
    {'correct': 1.0, 'format': 0.25}
    """
    weights = {}
    for part in options:
        component, _, weight = part.partition("=")
        try:
            weights[component] = float(weight)
        except ValueError:
            weights[component] = math.nan
        if not math.isfinite(weights[component]):
            raise UserError(f"--reward {part}", "COMPONENT=WEIGHT, such as correct=1", "fix the option")
    if options and not any(weights.values()):
        raise UserError(f"--reward {' '.join(options)}", "a weight other than 0", "fix the option")
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

        Prints win rates (as measured, and at equal length), ties, agreement and position bias. --out saves every verdict, and the model's replies,
        which a later run reuses. Exits with 1 if any verdict is invalid.
        """
        from eval.comparison import short_names
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
        a, b = short_names([answers_a.with_suffix(""), answers_b.with_suffix("")])
        summary = judge_json(results, judgements, a, b)
        if out is not None:
            write_judgements(judgements, summary, out)
            say(f"wrote {out / 'judge.json'} and {out / 'judgements.jsonl'}")
        if as_json:
            print_json(summary)
        else:
            print(as_text(judge_table(results, a, b)))
            print("\n" + "\n".join(judge_summary(results, a, b)))
        if any(one.invalid for one in results.values()):
            raise typer.Exit(1)

"""The command `modegraph eval judge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import Command
from graph.shared.cli_options import AsJson, Model, Seed, SomeOut
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

AnswersA = Annotated[
    Path, typer.Argument(metavar="A.jsonl", help='Answers of one system, lines of {"id", "question", "answer"}.')
]
AnswersB = Annotated[Path, typer.Argument(metavar="B.jsonl", help="Answers of the other to the same questions.")]


def register(commands: typer.Typer, open_model: OpenModel) -> None:
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

        Prints win rates, ties, agreement, and position and length bias. --out keeps every verdict, so that a later run goes on.
        Exits with 1 when verdicts were invalid.
        """
        from eval.judge.ask import judge_pairs
        from eval.judge.files import pair_up, read_answers
        from eval.judge.report import in_words, judge_json, judge_table, write_judgements
        from eval.judge.score import score_judgements
        from eval.shared.tables import as_text

        pairs = pair_up(read_answers(answers_a), read_answers(answers_b))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        judgements = judge_pairs(pairs, open_model(model, out / "ledger.sqlite" if out is not None else None))
        results = score_judgements(judgements, seed)
        summary = judge_json(results, judgements, answers_a.stem, answers_b.stem)
        if out is not None:
            write_judgements(judgements, summary, out)
            say(f"wrote {out / 'judge.json'} and {out / 'judgements.jsonl'}")
        if as_json:
            print_json(summary)
        else:
            print(as_text(judge_table(results, answers_a.stem, answers_b.stem)))
            print("\n" + "\n".join(in_words(results, answers_a.stem, answers_b.stem)))
        if any(one.invalid for one in results.values()):
            raise typer.Exit(1)

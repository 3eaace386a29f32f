"""The command `modegraph eval judge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `judge` to the commands of `eval`."""

    @commands.command()
    def judge(
        a: Annotated[Path, typer.Argument(metavar="A.jsonl", help='Answers, lines of {"id", "question", "answer"}.')],
        b: Annotated[Path, typer.Argument(metavar="B.jsonl", help="Answers to the same questions.")],
        model: Annotated[str, typer.Option(help="The judge: hf:PATH_OR_NAME or openai:NAME@URL.")],
        out: Annotated[
            Path | None,
            typer.Option(help="Folder for verdicts, figures and the ledger of calls (a later run goes on)."),
        ] = None,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """A language model compares two systems' answers in both orders: win rates, ties, agreement, position and length bias.

        Exit status 1 when verdicts were invalid.
        """
        from eval.judge.ask import judge_pairs
        from eval.judge.files import pair_up, read_answers
        from eval.judge.report import in_words, judge_json, judge_table, write_judgements
        from eval.judge.score import score_judgements
        from eval.shared.tables import as_text

        pairs = pair_up(read_answers(a), read_answers(b))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        judgements = judge_pairs(pairs, open_model(model, out / "ledger.sqlite" if out is not None else None))
        results = score_judgements(judgements, seed)
        summary = judge_json(results, judgements, a.stem, b.stem)
        if out is not None:
            write_judgements(judgements, summary, out)
            say(f"wrote {out / 'judge.json'} and {out / 'judgements.jsonl'}")
        if as_json:
            print_json(summary)
        else:
            print(as_text(judge_table(results, a.stem, b.stem)))
            print("\n" + "\n".join(in_words(results, a.stem, b.stem)))
        if any(one.invalid for one in results.values()):
            raise typer.Exit(1)

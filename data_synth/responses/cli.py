"""`modegraph synth responses`."""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import track
from graph.shared.types import OpenModel


def register(synth: typer.Typer, open_model: OpenModel) -> None:
    """Add `responses` to the commands of `synth`."""

    @synth.command()
    def responses(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold answers, one JSON object a line.")],
        policy: Annotated[str, typer.Option(help="The model to draw from (the SFT run): hf:PATH or openai:NAME@URL.")],
        out: Annotated[Path | None, typer.Option(help="The folder to write (not needed with --preview).")] = None,
        k: Annotated[int, typer.Option("--k", min=2, max=64, help="Responses drawn for each prompt.")] = 8,
        temperature: Annotated[float, typer.Option(min=0.05, help="Sampling temperature.")] = 1.0,
        max_tokens: Annotated[int, typer.Option(min=1, help="The longest response; cut ones are left out.")] = 256,
        mode: Annotated[str, typer.Option(help="How to retrieve: any mode of `modegraph ask`.")] = "dense",
        max_context: Annotated[int, typer.Option(min=1, help="The largest context, in excerpts.")] = 5,
        max_context_tokens: Annotated[
            int | None, typer.Option(help="The longest context, in tokens; passages that do not fit are left out.")
        ] = None,
        size: Annotated[
            list[int] | None, typer.Option(help="Only contexts of this many excerpts; repeatable. Default: all.")
        ] = None,
        judge: Annotated[str | None, typer.Option(help="A model that marks each response, as one more reward.")] = None,
        seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
        split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable. Default: all.")] = None,
        sample: Annotated[int | None, typer.Option(min=1, help="So many of the questions, drawn by the seed.")] = None,
        preview: Annotated[int | None, typer.Option(min=1, help="Show this many rows and write nothing.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """K responses of a policy to each prompt, with rewards by component: what K-response training learns from."""
        from itertools import chain

        from data_synth.contexts import check_gold, draw_questions, pick_questions, without_twins
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.responses.judge import judge_by
        from data_synth.responses.response_form import RESPONSES
        from data_synth.responses.responses import response_rows
        from data_synth.types import Sampling
        from graph.documents.questions import read_questions
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings

        values = {"mode": mode, "top_k": max_context, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth responses")
        picked = draw_questions(pick_questions(read_questions(questions), split or []), sample, seed)
        kept, twins = without_twins(picked[:preview])
        opened = open_index(index)
        check_gold(kept, frozenset(opened.sources()))
        ledger = ledger_of(out, preview)
        model = open_model(policy, ledger)
        marks = open_model(judge, ledger) if judge else None
        sampling = Sampling(k, temperature, max_tokens, seed)
        origin = {
            "Index": index.name,
            "Questions": questions.name + (f", {sample:,} of them drawn" if sample else ""),
            "Contexts": f"{', '.join(map(str, size)) if size else f'0 to {max_context}'} excerpts by mode {settings.mode}",
            "Policy": model.name,
            "Sampling": f"{k} draws a prompt at temperature {temperature:g}, up to {max_tokens:,} tokens, seed {seed}",
            "Judge": marks.name if marks else "none",
        }
        asked = kept if preview is not None else track(kept, "questions", len(kept))
        judging = judge_by(marks) if marks else None
        rows = response_rows(opened, asked, settings, model, sampling, size or [], judging)
        if not deliver(chain(twins, rows), RESPONSES, origin, out, preview, as_json):
            raise typer.Exit(1)

"""`modegraph synth responses`."""

from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import MODEL, command
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
    TopK,
    Verifier,
)
from graph.shared.console import track
from graph.shared.modes import DEFAULT_MODE

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

RENAMED = {
    "--k": "--samples",
    "--max-context": "--top-k",
    "--size": "--context-size",
    "--sample": "--limit",
    "--max-tokens": "--max-answer-tokens",
}
Policy = Annotated[
    list[str],
    typer.Option(
        metavar="SPEC",
        rich_help_panel=MODEL,
        help=f"Model to draw from, such as the SFT run: {SPEC}; several servers of it, openai: under one name, share the calls. Repeatable.",
    ),
]
Temperature = Annotated[float, typer.Option(metavar="T", min=0.05, rich_help_panel=MODEL, help="Sampling temperature.")]


def register(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `responses` to the commands of `synth`."""

    @synth.command(cls=command(RENAMED))
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
        """Draw K responses of a model to each prompt, and score them.

        Rewards are kept by component, and --judge adds its marks as one more. Prompts hold 0 to --top-k passages; responses cut
        at --max-answer-tokens are left out; --limit draws the questions by the seed.
        """
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
        from graph.verify.verifier import open_verifier

        values = {"mode": mode, "top_k": top_k, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth responses")
        checked_by = open_verifier(verifier)
        picked = draw_questions(pick_questions(read_questions(questions), split or []), limit, seed)
        distinct, twins = without_twins(picked[:preview])
        opened = open_index(index)
        check_gold(distinct, frozenset(opened.sources()))
        ledger = ledger_of(out, preview)
        model = open_model(policy[0] if len(policy) == 1 else policy, ledger)
        marks = open_model(judge, ledger) if judge else None
        sampling = Sampling(samples, temperature, max_answer_tokens, seed)
        origin = {
            "Index": index.name,
            "Questions": questions.name + (f", {limit:,} of them drawn" if limit else ""),
            "Contexts": f"{', '.join(map(str, context_size)) if context_size else f'0 to {top_k}'} excerpts by mode {settings.mode}",
            "Policy": model.name,
            "Sampling": f"{samples} draws a prompt at temperature {temperature:g}, up to {max_answer_tokens:,} tokens, seed {seed}",
            "Judge": marks.name if marks else "none",
            "Verifier": verifier or "that of modegraph",
        }
        judging = judge_by(marks) if marks else None
        rows = response_rows(opened, distinct, settings, model, sampling, context_size or [], judging, checked_by)
        # Rows, not questions: these are pulled many at a time, before the model is called.
        rows = (
            rows if preview is not None else track(rows, "prompts", len(distinct) * len(context_size or range(top_k)))
        )
        if not deliver(chain(twins, rows), RESPONSES, origin, out, preview, as_json):
            raise typer.Exit(1)

"""A finished run as a folder for llama.cpp and Ollama: its model as one GGUF file with a Modelfile, or its adapter as a file of its own.

llama.cpp then opens the file itself and writes greedy replies, which the run reads: a reply is the run's own where each of its tokens is
the run's first choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graph.errors import UserError
from graph.models.checkpoint import adapter_base, is_adapter
from graph.shared.console import say, track
from serve.engines.child import OwnServer
from serve.engines.llama import ADAPTER_PREFIX, CONTEXT_TOKENS, PACKAGE, SLOTS, is_installed, read_llama
from train.export.divergence import (
    REPLY_TOKENS,
    CompletionScores,
    ProbeConversation,
    first_difference,
    read_probe_conversations,
    score_completion,
)
from train.export.export import adapter_run, language_run, merged, public_record, write_public
from train.export.gguf import GgufType, write_adapter, write_gguf
from train.export.ollama import MODELFILE, modelfile
from train.export.server import Reply, Server, own_server
from train.model.load import device, load_model, load_tokenizer
from train.run.record import RunRecord
from train.run.save import check_output, fresh_folder

CONVERSATIONS = 100
NEAR_TIE = 0.02
"""Nats between the two likeliest tokens below which rounding may choose either."""


@dataclass(frozen=True)
class FileGaps:
    """How far a file is from the run as it computes in `precision`, in nats of a token of llama.cpp's greedy replies.

    `same_replies` have the run's greedy tokens throughout; `near_ties` more depart from them first where the run's two likeliest tokens
    are less than NEAR_TIE apart.
    """

    precision: str
    same_replies: int
    near_ties: int
    largest_gap_nats: float
    mean_gap_nats: float


def fitting(asked: Sequence[ProbeConversation], window: int) -> list[ProbeConversation]:
    """The conversations whose prompt and reply fit into a window of so many tokens, and into llama.cpp's."""
    return [each for each in asked if len(each.prompt) + REPLY_TOKENS <= min(window, CONTEXT_TOKENS)]


def llama_replies(
    file: Path, adapters: Mapping[str, Path], asked: Sequence[ProbeConversation], tokenizer: Any
) -> list[Reply]:
    """llama.cpp's greedy replies by a file and the one adapter on it, if any.

    UserError when it does not open them, or reads a prompt in other tokens than training did.
    """
    spec = read_llama(str(file), adapters)
    name = next(iter(adapters), spec.name)
    with closing(OwnServer(spec)) as child:
        child.wait()
        server = own_server(spec, child)

        def reply(each: ProbeConversation) -> Reply:
            _check_prompt(server, name, each, file, tokenizer)
            return server.greedy(name, each.messages, REPLY_TOKENS, tokenizer)

        at_once = SLOTS if max(len(each.prompt) for each in asked) + REPLY_TOKENS <= CONTEXT_TOKENS // SLOTS else 1
        with ThreadPoolExecutor(at_once) as pool:
            return list(track(pool.map(reply, asked), "replies by llama.cpp", len(asked)))


def compare(model: Any, precision: str, asked: Sequence[ProbeConversation], replies: Sequence[Reply]) -> FileGaps:
    """What the run's model says along the replies, beside what llama.cpp said."""
    model.to(device()).eval()
    ours = list(track(_score_replies(model, asked, replies), f"the run in {precision}", len(asked)))
    gaps = [
        abs(a - b)
        for reply, own in zip(replies, ours, strict=True)
        for a, b in zip(reply.logps, own.logps, strict=True)
    ]
    first = [first_departure(own) for own in ours]
    return FileGaps(
        precision,
        same_replies=first.count(0.0),
        near_ties=sum(0 < nats < NEAR_TIE for nats in first),
        largest_gap_nats=max(gaps),
        mean_gap_nats=sum(gaps) / len(gaps),
    )


def first_departure(own: CompletionScores) -> float:
    """How much likelier the run's own first choice is at the first token of a reply that is not it, in nats; 0 where each is.

    >>> first_departure(CompletionScores((-0.1, -0.9, -2.0), (0.0, 0.5, 1.0))), first_departure(CompletionScores((-0.1,), (0.0,)))
    (0.5, 0.0)
    """
    return next((nats for nats in own.behind if nats > 0), 0.0)


def _score_replies(
    model: Any, asked: Sequence[ProbeConversation], replies: Sequence[Reply]
) -> Iterator[CompletionScores]:
    for each, reply in zip(asked, replies, strict=True):
        yield score_completion(model, each.answered_by(reply.ids or ()))


def _check_prompt(server: Server, name: str, each: ProbeConversation, file: Path, tokenizer: Any) -> None:
    found = server.prompt_ids(name, each.messages) or ()
    if found != each.prompt:
        place, here, there = first_difference(each.prompt, found, tokenizer)
        raise UserError(
            f"{file.name}: llama.cpp reads a prompt in other tokens than training did: from token {place} on {there}",
            here,
            "export the run with --merge, and convert the folder with llama.cpp's own converter",
        )


USE_WHOLE = f"""## Use

```console
$ ollama create NAME --file {MODELFILE}
```

or open the file with llama.cpp or LM Studio, with the system prompt of `{MODELFILE}`; or `modegraph ask INDEX "question" --model gguf:FOLDER`."""
USE_ADAPTER = """## Use

```console
$ llama-server --model BASE.gguf --lora {file}
```

with a GGUF file of the base model; or `modegraph ask INDEX "question" --model gguf:FOLDER` where `modegraph models list` names the base."""
NOT_OPENED = (
    f"not opened: the package {PACKAGE}, which brings llama.cpp, is not installed (pip install 'modegraph[cpu]')"
)
NONE_FITS = "not compared: no conversation of the run fits into the model's window with its reply"


@dataclass(frozen=True)
class GgufExport:
    """The file, and how far it is from the run over `tokens` tokens of llama.cpp's greedy replies in `conversations` of `measured_on`.

    `gaps` are those to the run in the precision that it was trained in, then to the run in float32; () where llama.cpp did not open it.
    `template` says whether the Modelfile has the chat template; an adapter has none.
    """

    file: str
    megabytes: float
    template: bool
    measured_on: str
    conversations: int
    tokens: int
    gaps: tuple[FileGaps, ...]


def export_gguf(
    run: Path, output: Path, kind: GgufType, adapter_only: bool = False, conversations: int = CONVERSATIONS
) -> GgufExport:
    """The model of a run, its adapter merged, as GGUF with a Modelfile in `output`, or with `adapter_only` the adapter; card and run.json.

    UserError for a run that is no language model or has no adapter to write, an architecture, adapter or tokenizer that GGUF cannot hold
    here, a place that is taken, or a file that llama.cpp does not open or reads in other tokens.
    """
    record = adapter_run(run) if adapter_only else language_run(run)
    check_output(output)
    tokenizer = load_tokenizer(str(run))
    measured_on, asked = read_probe_conversations(record, tokenizer, conversations)
    public = public_record(run, record)
    with fresh_folder(output) as folder:
        file = folder / f"{ADAPTER_PREFIX if adapter_only else 'model-'}{kind}.gguf"
        if adapter_only:
            template, window = False, _write_adapter(run, record, file, kind, public.base_model)
        else:
            template, window = _write_whole(run, record, tokenizer, file, kind)
        heard = fitting(asked, window) if is_installed() else []
        gaps, tokens = _compare_with_llama_cpp(run, record, tokenizer, file, heard, adapter_only) if heard else ((), 0)
        megabytes = round(file.stat().st_size / 1e6, 1)
        made = GgufExport(file.name, megabytes, template, measured_on, len(heard), tokens, gaps)
        use = USE_ADAPTER.format(file=file.name) if adapter_only else USE_WHOLE
        section = f"## Precision\n\nWeights are stored as {kind.upper()}.\n\n{describe_export(made)}"
        write_public(folder, public, "", [use, section], adapter_only)
    return made


def describe_export(made: GgufExport) -> str:
    """How far the file is from the run, for people: Markdown."""
    if not made.gaps:
        return f"{made.file}: {NONE_FITS if is_installed() else NOT_OPENED}"
    on = " on an F16 file of its base" if made.file.startswith(ADAPTER_PREFIX) else ""
    lines = [
        f"llama.cpp{on} wrote {made.conversations} greedy replies ({made.tokens:,} tokens) to conversations of {made.measured_on}:",
        "",
    ]
    for each in made.gaps:
        ties = (
            f", and {each.near_ties} more up to a near tie (two tokens less than {NEAR_TIE:g} nats apart)"
            if each.near_ties
            else ""
        )
        lines.append(
            f"* the run in {each.precision}: the same tokens in {each.same_replies} of {made.conversations}{ties}; "
            f"log-probabilities {each.largest_gap_nats:.2g} nats apart at most, {each.mean_gap_nats:.2g} in the mean"
        )
    return "\n".join(lines)


def _write_whole(run: Path, record: RunRecord, tokenizer: Any, file: Path, kind: GgufType) -> tuple[bool, int]:
    """The model as a file, and a Modelfile beside it; whether that has the chat template, and the model's window in tokens."""
    if is_adapter(str(run)):
        say(f"merging {run} into {adapter_base(str(run))}")
        whole = merged(run, _precision(record))
    else:
        whole = load_model(str(run), _precision(record))
    say(f"writing {file.name}")
    write_gguf(whole, tokenizer, file, kind, run.resolve().name)
    window = whole.config.max_position_embeddings
    text, template = modelfile(file.name, tokenizer, window)
    (file.parent / MODELFILE).write_text(text, encoding="utf-8")
    if not template:
        why = "since the model's own is not a plain sequence of turns; write one by hand"
        say(f"{MODELFILE}: without a TEMPLATE, {why}")
    return template, window


def _write_adapter(run: Path, record: RunRecord, file: Path, kind: GgufType, base: str) -> int:
    """The adapter as a file; the window of its base in tokens."""
    model = load_model(str(run), _precision(record))
    write_adapter(model, file, kind, run.resolve().name, base)
    return int(model.config.max_position_embeddings)


def _compare_with_llama_cpp(
    run: Path, record: RunRecord, tokenizer: Any, file: Path, asked: Sequence[ProbeConversation], adapter_only: bool
) -> tuple[tuple[FileGaps, ...], int]:
    """How far the file is from the run in its own precision and in float32, and the tokens that this was measured on."""
    with _opens_in_llama_cpp(run, record, tokenizer, file, adapter_only) as (whole, adapters):
        replies = llama_replies(whole, adapters, asked, tokenizer)
    precision, quantisation = _precision(record), record.settings.get("quantise", "none")
    model = load_model(str(run), precision, quantisation=quantisation)
    gaps = [compare(model, precision, asked, replies)]
    if precision != "float32" and quantisation == "none":
        gaps.append(compare(model.float(), "float32", asked, replies))
    return tuple(gaps), sum(len(reply.logps) for reply in replies)


@contextmanager
def _opens_in_llama_cpp(
    run: Path, record: RunRecord, tokenizer: Any, file: Path, adapter_only: bool
) -> Iterator[tuple[Path, Mapping[str, Path]]]:
    """What llama.cpp opens: the file, or an F16 file of the run's base for as long, so that the adapter alone is judged, and the file on it."""
    if not adapter_only:
        yield file, {}
        return
    with TemporaryDirectory() as place:
        base = Path(place) / "base.gguf"
        say(f"writing {adapter_base(str(run))} as F16, to try the adapter on")
        write_gguf(load_model(adapter_base(str(run)), _precision(record)), tokenizer, base, "f16", "base")
        yield base, {"adapter": file}


def _precision(record: RunRecord) -> Any:
    return record.settings.get("precision", "float32")

"""A finished run as a folder for llama.cpp and Ollama: its model as one GGUF file with a Modelfile, or its adapter as a separate GGUF file.

llama.cpp then opens the file and writes greedy replies, which the run scores: a reply equals the run's own if each of its tokens is the
run's most likely one.

The Modelfile contains the chat template in Ollama's format, the stop token and, if training used a system prompt of modegraph, that prompt. Ollama does
not read Jinja templates: the text around each turn is extracted from chats that the model's template renders, and written as a Go template. A
template whose text varies from turn to turn, or does not fit Ollama's syntax, is omitted, with a comment in the Modelfile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_text
from graph.errors import UserError
from graph.models.checkpoint import adapter_base, is_adapter
from graph.shared.console import say, track
from graph.types import AnswerForm, Message
from serve.engines.child import CommandServer
from serve.engines.llama import ADAPTER_PREFIX, CONTEXT_TOKENS, PACKAGE, SLOTS, is_installed, read_llama
from train.export.divergence import (
    REPLY_TOKENS,
    CompletionScores,
    ProbeConversation,
    first_difference,
    read_probe_conversations,
    score_completion,
)
from train.export.export import adapter_run, language_run, merged_model, public_record, write_public
from train.export.gguf import CONVERT, GgufType, write_adapter, write_gguf
from train.export.server import Reply, Server, llama_client
from train.model.load import device, load_model, load_tokenizer
from train.run.record import RunRecord
from train.run.save import check_output, fresh_folder

MODELFILE = "Modelfile"
MAX_CONTEXT = 8192
"""The maximum number of context tokens for which Ollama reserves memory; a shorter window of the model takes precedence."""
_Role = Literal["system", "user", "assistant"]
_ROLES: tuple[_Role, ...] = ("system", "user", "assistant", "user", "assistant", "user")
_UNWRITABLE = ('"""', "{{", "}}")


@dataclass(frozen=True)
class Turns:
    """The text that a chat template writes around the turns of a chat that begins with a system turn.

    `after_last_user` follows the user turn that the model is to answer, `after_user` an earlier one.
    """

    opening: str
    after_system: str
    after_last_user: str
    after_user: str
    after_answer: str


def modelfile(gguf: str, tokenizer: Any, context_tokens: int, form: AnswerForm | None) -> tuple[str, bool]:
    """The text of a Modelfile for the file `gguf` in the same folder, whose model answers in `form` (None: in none of modegraph's forms); and whether the
    text contains the chat template.
    """
    turns = turns_of(tokenizer)
    template = "# No TEMPLATE: the model's chat template cannot be written in Ollama's format."
    if turns is not None:
        template = f'TEMPLATE """{go_template(turns)}"""'
    lines = [
        f"FROM ./{gguf}",
        template,
        *([] if form is None else [f'SYSTEM """{answer_messages("?", (), form)[0].content}"""']),
        f'PARAMETER stop "{tokenizer.eos_token}"',
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {min(context_tokens, MAX_CONTEXT)}",
    ]
    return "\n".join(lines) + "\n", turns is not None


def turns_of(tokenizer: Any) -> Turns | None:
    """The text that the tokenizer's chat template writes around turns; None if it varies from turn to turn, or does not fit Ollama's syntax."""
    try:
        short, long = _between(tokenizer, 2), _between(tokenizer, len(_ROLES))
    except (UserError, ValueError):
        return None
    turns = Turns(short[0], short[1], short[2], long[2], long[3])
    expected = [turns.opening, turns.after_system, *[turns.after_user, turns.after_answer] * 2, turns.after_last_user]
    if long != expected or any(word in piece for piece in expected for word in _UNWRITABLE):
        return None
    # A start token that the tokenizer puts before every text is added by Ollama, so the template must not write it.
    if tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]:
        turns = replace(turns, opening=turns.opening.removeprefix(str(tokenizer.bos_token)))
    return turns


def go_template(turns: Turns) -> str:
    """The turns as an Ollama template.

    >>> go_template(Turns("<s>", "<u>", "<a>", "<a>", "<u>"))
    '{{ range .Messages }}{{ if eq .Role "system" }}<s>{{ .Content }}<u>{{ else if eq .Role "user" }}{{ .Content }}<a>{{ else }}{{ .Content }}<u>{{ end }}{{ end }}'
    """
    after, loop = turns.after_last_user, "range .Messages"
    if turns.after_last_user != turns.after_user:
        loop = "range $i, $_ := .Messages"
        after = f"{{{{ if eq (len (slice $.Messages $i)) 1 }}}}{turns.after_last_user}{{{{ else }}}}{turns.after_user}{{{{ end }}}}"
    return (
        f"{{{{ {loop} }}}}"
        f'{{{{ if eq .Role "system" }}}}{turns.opening}{{{{ .Content }}}}{turns.after_system}'
        f'{{{{ else if eq .Role "user" }}}}{{{{ .Content }}}}{after}'
        f"{{{{ else }}}}{{{{ .Content }}}}{turns.after_answer}{{{{ end }}}}{{{{ end }}}}"
    )


def _between(tokenizer: Any, number: int) -> list[str]:
    """The text that the template writes before, between and after `number` turns, up to the start of the answer; ValueError if it reorders them."""
    words = [f"0f2f6c9e5b{place}" for place in range(number)]
    text = prompt_text(tokenizer, [Message(role, word) for role, word in zip(_ROLES, words, strict=False)])
    pieces = []
    for word in words:
        piece, text = text.split(word, maxsplit=1)
        pieces.append(piece)
    return [*pieces, text]


CONVERSATIONS = 20
NEAR_TIE = 0.02
"""If the two likeliest tokens are less than this many nats apart, rounding may choose either."""


@dataclass(frozen=True)
class FileGaps:
    """The gap between a file and the run in `precision`, in nats per token of llama.cpp's greedy replies.

    `same_replies` counts the replies with the run's greedy tokens throughout; `near_ties` counts others whose first different token
    has, in the run, a log-probability less than NEAR_TIE below that of the greedy token.
    """

    precision: str
    same_replies: int
    near_ties: int
    largest_gap_nats: float
    mean_gap_nats: float


def fitting_probes(probes: Sequence[ProbeConversation], window: int) -> list[ProbeConversation]:
    """The conversations whose prompt and reply fit into `window` tokens, and into llama.cpp's context."""
    return [probe for probe in probes if len(probe.row.prompt) + REPLY_TOKENS <= min(window, CONTEXT_TOKENS)]


def llama_replies(
    file: Path, adapters: Mapping[str, Path], probes: Sequence[ProbeConversation], tokenizer: Any
) -> list[Reply]:
    """llama.cpp's greedy replies with the model in `file` and the one adapter in `adapters`, if any.

    UserError if llama.cpp cannot open the files, or tokenises a prompt differently from training.
    """
    spec = read_llama(str(file), adapters)
    name = next(iter(adapters), spec.name)
    with closing(CommandServer(spec)) as child:
        child.wait()
        server = llama_client(spec, child)

        def reply(probe: ProbeConversation) -> Reply:
            _check_prompt(server, name, probe, file, tokenizer)
            return server.greedy(name, probe.messages, REPLY_TOKENS, tokenizer)

        longest = max(len(probe.row.prompt) for probe in probes) + REPLY_TOKENS
        workers = SLOTS if longest <= CONTEXT_TOKENS // SLOTS else 1
        with ThreadPoolExecutor(workers) as pool:
            return list(track(pool.map(reply, probes), "replies by llama.cpp", len(probes)))


def compare(model: Any, precision: str, probes: Sequence[ProbeConversation], replies: Sequence[Reply]) -> FileGaps:
    """The gaps between the run's scores of the replies and llama.cpp's, over the replies that have tokens."""
    model.to(device()).eval()
    pairs = [(reply, probe.with_answer(reply.ids)) for probe, reply in zip(probes, replies, strict=True) if reply.ids]
    scored = (score_completion(model, row) for _, row in pairs)
    ours = list(track(scored, f"the run in {precision}", len(pairs)))
    gaps = [
        abs(a - b)
        for (reply, _), scores in zip(pairs, ours, strict=True)
        for a, b in zip(reply.logps, scores.logps, strict=True)
    ]
    departures = [first_departure(scores) for scores in ours]
    return FileGaps(
        precision,
        same_replies=departures.count(0.0),
        near_ties=sum(0 < nats < NEAR_TIE for nats in departures),
        largest_gap_nats=max(gaps),
        mean_gap_nats=sum(gaps) / len(gaps),
    )


def first_departure(scores: CompletionScores) -> float:
    """The gap, in nats, at the first token of a reply that is not the run's most likely one; 0 if there is none.

    >>> first_departure(CompletionScores((-0.1, -0.9, -2.0), (0.0, 0.5, 1.0))), first_departure(CompletionScores((-0.1,), (0.0,)))
    (0.5, 0.0)
    """
    return next((nats for nats in scores.nats_below_best if nats > 0), 0.0)


def _check_prompt(server: Server, name: str, probe: ProbeConversation, file: Path, tokenizer: Any) -> None:
    ids = server.prompt_ids(name, probe.messages) or ()
    if ids != probe.row.prompt:
        position, here, there = first_difference(probe.row.prompt, ids, tokenizer)
        raise UserError(
            f"{file.name}: llama.cpp tokenises a prompt differently from training: from token {position} on, it reads {there}",
            here,
            CONVERT,
        )


USE_MODEL = f"""## Use

```console
$ ollama create NAME --file {MODELFILE}
```

or open the file with llama.cpp or LM Studio{{prompt}}; or `modegraph ask INDEX "question" --model gguf:FOLDER`."""
USE_ADAPTER = """## Use

```console
$ llama-server --model BASE.gguf --lora {file}
```

with a GGUF file of the base model; or `modegraph ask INDEX "question" --model gguf:FOLDER` if `modegraph models list` lists the base."""
NOT_OPENED = (
    f"not opened: the package {PACKAGE}, which includes llama.cpp, is not installed (pip install 'modegraph[cpu]')"
)
NO_TOKENS = "not compared: llama.cpp returned no log-probabilities with its replies"
NONE_FITS = "not compared: no conversation with its reply fits into the model's window and llama.cpp's context"


@dataclass(frozen=True)
class GgufExport:
    """The file, and its gaps to the run, measured on `tokens` tokens of llama.cpp's greedy replies to `conversations` conversations of `measured_on`.

    `gaps` are those to the run in its training precision, then in float32, unless the two are the same or the base is quantised; () if nothing was compared.
    `template`: whether the Modelfile contains the chat template; False for an adapter, which has no Modelfile.
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
    """Write into `output` the model of a run, its adapter merged, as GGUF with a Modelfile, or the adapter alone; with a model card and run.json.

    UserError for a run that is not a language model or has no adapter to write, an unsupported architecture, adapter or tokenizer, an
    `output` that exists, or a file that llama.cpp cannot open or tokenises differently.
    """
    record = adapter_run(run) if adapter_only else language_run(run)
    check_output(output)
    tokenizer = load_tokenizer(str(run))
    measured_on, probes = read_probe_conversations(record, tokenizer, conversations)
    public = public_record(run, record)
    with fresh_folder(output) as folder:
        file = folder / f"{ADAPTER_PREFIX if adapter_only else 'model-'}{kind}.gguf"
        if adapter_only:
            template, window = False, _write_adapter(run, record, file, kind, public.base_model)
        else:
            template, window = _write_model(run, record, tokenizer, file, kind)
        probes = fitting_probes(probes, window) if is_installed() else []
        gaps, tokens = (
            _compare_with_llama_cpp(run, record, tokenizer, file, probes, adapter_only) if probes else ((), 0)
        )
        megabytes = round(file.stat().st_size / 1e6, 1)
        export = GgufExport(file.name, megabytes, template, measured_on, len(probes), tokens, gaps)
        prompt = "" if record.answer_form is None else f", with the system prompt of `{MODELFILE}`"
        use = USE_ADAPTER.format(file=file.name) if adapter_only else USE_MODEL.format(prompt=prompt)
        section = f"## Precision\n\nWeights are stored as {kind.upper()}.\n\n{describe_export(export)}"
        write_public(folder, public, "", [use, section], adapter_only)
    return export


def describe_export(export: GgufExport) -> str:
    """The gaps between the file and the run, or why none were measured, as Markdown."""
    if not export.gaps:
        reason = NO_TOKENS if export.conversations else NONE_FITS
        return f"{export.file}: {reason if is_installed() else NOT_OPENED}"
    base = " with the adapter on an F16 file of its base" if export.file.startswith(ADAPTER_PREFIX) else ""
    lines = [
        f"llama.cpp{base} wrote {export.conversations} greedy replies ({export.tokens:,} tokens) to conversations of {export.measured_on}:",
        "",
    ]
    for gaps in export.gaps:
        ties = ""
        if gaps.near_ties:
            ties = f", and {gaps.near_ties} more up to a near tie (two tokens less than {NEAR_TIE:g} nats apart)"
        lines.append(
            f"* the run in {gaps.precision}: the same tokens in {gaps.same_replies} of {export.conversations}{ties}; "
            f"log-probabilities {gaps.largest_gap_nats:.2g} nats apart at most, {gaps.mean_gap_nats:.2g} on average"
        )
    return "\n".join(lines)


def _write_model(run: Path, record: RunRecord, tokenizer: Any, file: Path, kind: GgufType) -> tuple[bool, int]:
    """Write the model and a Modelfile; return whether the Modelfile contains the chat template, and the model's window in tokens."""
    if is_adapter(str(run)):
        say(f"merging {run} into {adapter_base(str(run))}")
        model = merged_model(run, _precision(record))
    else:
        model = load_model(str(run), _precision(record))
    say(f"writing {file.name}")
    write_gguf(model, tokenizer, file, kind, run.resolve().name)
    window = model.config.max_position_embeddings
    text, template = modelfile(file.name, tokenizer, window, record.answer_form)
    (file.parent / MODELFILE).write_text(text, encoding="utf-8")
    if not template:
        reason = "because the model's chat template cannot be written in Ollama's format; write one by hand"
        say(f"{MODELFILE}: without a TEMPLATE, {reason}")
    return template, window


def _write_adapter(run: Path, record: RunRecord, file: Path, kind: GgufType, base: str) -> int:
    """Write the adapter; return the window of its base in tokens."""
    model = load_model(str(run), _precision(record))
    write_adapter(model, file, kind, run.resolve().name, base)
    return int(model.config.max_position_embeddings)


def _compare_with_llama_cpp(
    run: Path, record: RunRecord, tokenizer: Any, file: Path, probes: Sequence[ProbeConversation], adapter_only: bool
) -> tuple[tuple[FileGaps, ...], int]:
    """The `gaps` and `tokens` of a `GgufExport`. An adapter is tested on a temporary F16 file of its base, so that only the adapter is compared."""
    precision, quantisation = _precision(record), record.settings.get("quantise", "none")
    with TemporaryDirectory() as folder:
        model_file, adapters = file, dict[str, Path]()
        if adapter_only:
            model_file, adapters = Path(folder) / "base.gguf", {"adapter": file}
            base = adapter_base(str(run))
            say(f"writing {base} as F16, to test the adapter on it")
            write_gguf(load_model(base, precision), tokenizer, model_file, "f16", "base")
        replies = llama_replies(model_file, adapters, probes, tokenizer)
    if not any(reply.ids for reply in replies):
        return (), 0
    model = load_model(str(run), precision, quantisation=quantisation)
    gaps = [compare(model, precision, probes, replies)]
    if precision != "float32" and quantisation == "none":
        gaps.append(compare(model.float(), "float32", probes, replies))
    return tuple(gaps), sum(len(reply.ids or ()) for reply in replies)


def _precision(record: RunRecord) -> Any:
    return record.settings.get("precision", "float32")

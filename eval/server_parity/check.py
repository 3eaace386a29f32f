"""`modegraph serve check`: compares a server with a run: prompts, log-probabilities of the answers in the run's data, and greedy replies, one at
a time and 16 concurrently.

Contains the run's side (as trained, without its adapter, with it applied twice), the server's side (already running, or a private llama.cpp for a GGUF
file), the check, and its report for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from eval.server_parity.faults import (
    Measurement,
    Report,
    RunState,
    ServedLogps,
    Tolerance,
    gaps_between,
    greedy_fault,
    logps_fault,
    no_effect_fault,
    template_count_fault,
    template_fault,
)
from eval.tables import figure_or_dash
from graph.errors import UserError
from graph.models.checkpoint import is_adapter
from graph.shared.console import say
from serve.engines.child import CommandServer
from serve.engines.llama import read_llama
from serve.engines.openai_api import split_target
from train.export.divergence import (
    REPLY_TOKENS,
    CompletionScores,
    ProbeConversation,
    read_probe_conversations,
    score_completion,
)
from train.export.export import language_run
from train.export.server import Reply, Server, llama_client
from train.model.load import device, load_model, load_tokenizer
from train.model.logps import TokenizedRow
from train.run.record import RunRecord


class RunPolicy:
    """The model of a run; its scores of a row are cached."""

    def __init__(self, run: Path, record: RunRecord) -> None:
        settings = record.settings
        precision, quantisation = settings.get("precision", "float32"), settings.get("quantise", "none")
        self.has_adapter = is_adapter(str(run))
        self.tokenizer = load_tokenizer(str(run))
        self._model = load_model(str(run), precision, quantisation=quantisation).to(device()).eval()
        self._cache: dict[tuple[TokenizedRow, RunState], CompletionScores] = {}

    def score_completion(self, rows: Sequence[TokenizedRow], state: RunState) -> list[CompletionScores]:
        """The model's scores of each row's completion; without an adapter, `state` makes no difference."""
        for row in rows:
            if (row, state) not in self._cache:
                with self._in_state(state):
                    self._cache[row, state] = score_completion(self._model, row)
        return [self._cache[row, state] for row in rows]

    def _in_state(self, state: RunState) -> Any:
        if state == "trained" or not self.has_adapter:
            return nullcontext()
        if state == "bare":
            return self._model.disable_adapter()
        from peft.helpers import rescale_adapter_scale

        return rescale_adapter_scale(self._model, 2.0)


@contextmanager
def open_target(spec: str) -> Iterator[tuple[str, Server]]:
    """(name, server) of `gguf:FILE`, `gguf:FOLDER`, `gguf:NAME` of the catalogue, `openai:NAME@URL`, or a URL, whose name is "".

    UserError for anything else, and for a file that llama.cpp cannot open.
    """
    kind, _, target = spec.partition(":")
    if kind != "gguf":
        name, url = read_target(spec)
        yield name, Server(url)
        return
    llama = read_llama(target, {})
    with closing(CommandServer(llama)) as child:
        child.wait()
        yield next(iter(llama.adapters), llama.name), llama_client(llama, child)


def read_target(spec: str) -> tuple[str, str]:
    """(name, URL) of `openai:NAME@URL`, or of a URL alone, whose name is ""; UserError for anything else."""
    if spec.startswith(("http://", "https://")) and urlsplit(spec).hostname:
        return "", spec
    kind, _, target = spec.partition(":")
    if kind != "openai":
        remedy = "start the server and give its URL (…/v1), or give an exported GGUF file"
        raise UserError(f"{spec!r}", "openai:NAME@URL, the URL of a server, or gguf:FILE", remedy)
    return split_target(target)


BATCHES = (1, 16)


def check_server(server: Server, name: str, run: Path, base: str, conversations: int, tolerance: Tolerance) -> Report:
    """Compare the model `name` of a server with `run`; if the run is an adapter, also the served base model with the run without its adapter.

    If `name` is "", the model named like the run is compared, or else the only one that is not the base of another.
    UserError when the server cannot be reached, has no such model, or has several to choose from.
    """
    record = language_run(run)
    parents = server.parents()
    name = name or _name_of(run, parents, server.label)
    for model in filter(None, (name, base)):
        if model not in parents:
            raise UserError(f"{server.label}: no model {model!r}", f"one of {', '.join(parents)}", "name one of them")
    say(f"opening {run}")
    policy = RunPolicy(run, record)
    check = _Check(server, policy, str(run), tolerance)
    _, probes = read_probe_conversations(record, policy.tokenizer, conversations)
    check.check_model(name, probes, "trained")
    if policy.has_adapter:
        rows = [probe.row for probe in probes]
        effect = gaps_between(policy.score_completion(rows, "trained"), policy.score_completion(rows, "bare")).token
        if effect <= tolerance.token:
            check.faults.append(no_effect_fault(str(run), effect))
        if base_name := base or parents[name]:
            check.check_model(base_name, probes, "bare")
        else:
            check.unchecked.append(
                f"{name} without its adapter: {server.label} does not name the base; if it serves the base, give --base-name"
            )
    unchecked = tuple(dict.fromkeys(check.unchecked))
    return Report(server.label, str(run), tolerance, tuple(check.measurements), tuple(check.faults), unchecked)


@dataclass
class _Check:
    """The results of one check so far."""

    server: Server
    policy: RunPolicy
    run: str
    tolerance: Tolerance
    measurements: list[Measurement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def check_model(self, name: str, probes: Sequence[ProbeConversation], expected: RunState) -> None:
        """Check everything about one served model, which should behave as the run does in state `expected`."""
        if not self._compare_training(name, probes, expected):
            self.unchecked.append(
                f"{name}: log-probabilities of the training answers: the server returns none for the tokens of a prompt"
            )
        same_prompts = self._compare_templates(name, probes)
        if same_prompts is False:
            return
        for batch in BATCHES:
            self._compare_greedy(name, probes, expected, batch, same_prompts is None)

    def _compare_training(self, name: str, probes: Sequence[ProbeConversation], expected: RunState) -> bool:
        """Compare log-probabilities of the answers in the run's data, one conversation at a time; False when the server returns none."""
        say(f"{name}: {len(probes)} conversations of the run")
        served: list[ServedLogps] = []
        for row in (probe.row for probe in probes):
            logps = self.server.prompt_logps(name, row.ids)
            if logps is None:
                return False
            served.append(ServedLogps(row, logps[row.prompt_tokens - 1 :]))
        self._compare(name, served, expected, 1, greedy=False)
        return True

    def _compare_templates(self, name: str, probes: Sequence[ProbeConversation]) -> bool | None:
        """Whether the server writes prompts as training did; None when it does not return their tokens."""
        for number, probe in enumerate(probes, start=1):
            ours = probe.row.prompt
            theirs = self.server.prompt_ids(name, probe.messages)
            if theirs is None:
                return None
            if theirs != ours:
                self._fault(template_fault(name, self.run, number, ours, theirs, self.policy.tokenizer))
                return False
        return True

    def _compare_greedy(
        self, name: str, probes: Sequence[ProbeConversation], expected: RunState, batch: int, count: bool
    ) -> None:
        """Compare greedy replies with the run's own choices; with `count`, prompts are compared by their number of tokens."""
        # If there are fewer conversations than a batch needs, they are repeated.
        batch_probes = list(islice(cycle(probes), max(len(probes), batch)))
        say(f"{name}: {len(batch_probes)} greedy replies, {batch} at a time")

        def reply_to(probe: ProbeConversation) -> Reply:
            return self.server.greedy(name, probe.messages, REPLY_TOKENS, self.policy.tokenizer)

        with ThreadPoolExecutor(batch) as pool:
            replies = list(pool.map(reply_to, batch_probes))
        for number, (probe, reply) in enumerate(zip(batch_probes, replies, strict=True), start=1):
            if count and reply.prompt_tokens and reply.prompt_tokens != probe.row.prompt_tokens:
                self._fault(template_count_fault(name, self.run, number, probe.row.prompt_tokens, reply.prompt_tokens))
                return
        served = [
            ServedLogps(probe.with_answer(reply.ids), reply.logps)
            for probe, reply in zip(batch_probes, replies, strict=True)
            if reply.ids and len(reply.ids) == len(reply.logps)
        ]
        if served:
            self._compare(name, served, expected, batch, greedy=True)
        if len(served) < len(replies):
            self.unchecked.append(f"{name}: greedy replies whose tokens the server does not return")

    def _compare(self, name: str, served: Sequence[ServedLogps], expected: RunState, batch: int, greedy: bool) -> None:
        """Record the gaps, and a fault if they are out of tolerance or a greedy token is too far from the run's first choice; one fault per model is enough."""
        rows = [row_logps.row for row_logps in served]
        ours = self.policy.score_completion(rows, expected)
        gaps = gaps_between(served, ours)
        behind = [
            (gap, row, index)
            for row, scores in zip(rows, ours, strict=True)
            for index, gap in enumerate(scores.nats_below_best)
        ]
        share = sum(gap == 0 for gap, _, _ in behind) / len(behind)
        kind, tokens = "greedy" if greedy else "training", sum(len(row_logps.logps) for row_logps in served)
        self.measurements.append(
            Measurement(name, expected == "trained", kind, batch, len(served), tokens, gaps, share if greedy else None)  # type: ignore[arg-type]
        )
        if any(fault.startswith(f"{name}: ") for fault in self.faults):
            return
        if not self.tolerance.allows(gaps):
            gaps_by_state = {expected: gaps}
            if self.policy.has_adapter:
                gaps_by_state |= {
                    state: gaps_between(served, self.policy.score_completion(rows, state))
                    for state in get_args(RunState)
                    if state != expected
                }
            self._fault(logps_fault(name, self.run, expected, gaps_by_state, batch, self.tolerance))
            return
        worst, row, index = max(behind, key=lambda entry: entry[0])
        if greedy and worst > self.tolerance.conversation:
            text = self.policy.tokenizer.decode(row.ids[row.prompt_tokens : row.prompt_tokens + index + 1])
            self._fault(greedy_fault(name, text, worst))

    def _fault(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)


def _name_of(run: Path, parents: dict[str, str], server: str) -> str:
    if run.resolve().name in parents:
        return run.resolve().name
    not_bases = [name for name in parents if name not in parents.values()]
    if len(not_bases) == 1:
        return not_bases[0]
    found = f"{server}: {len(parents)} models ({', '.join(parents)})"
    raise UserError(found, "the name of one of them", "name it as openai:NAME@URL")


def parity_text(report: Report) -> str:
    """The report as text; gaps are nats between the server's log-probabilities and the run's."""
    gaps = ("worst conversation", "mean token", "worst token")
    header = ("model", "adapter", "answers", "concurrent", "conversations", "tokens", *gaps, "matches first choice")
    rows = [header, *map(_measurement_row, report.measured)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    tolerance = report.tolerance
    allowed = f"{tolerance.conversation:g} nats per conversation, {tolerance.token:g} per token on average"
    lines += ["", f"tolerance: {allowed}"]
    lines += [f"fault: {fault}" for fault in report.faults]
    lines += [f"not checked: {item}" for item in report.unchecked]
    if not report.faults:
        lines.append(f"{report.server} reproduces {report.run}" if report.measured else "nothing could be compared")
    return "\n".join(lines)


def _measurement_row(measurement: Measurement) -> tuple[str, ...]:
    gaps = (measurement.gaps.conversation, measurement.gaps.token, measurement.gaps.largest)
    counts = (measurement.batch, measurement.conversations, measurement.tokens)
    figures = (*map(str, counts), *(f"{gap:.2g}" for gap in gaps), figure_or_dash(measurement.likeliest, ".1%"))
    return (measurement.model, "on" if measurement.adapter else "off", measurement.answers, *figures)

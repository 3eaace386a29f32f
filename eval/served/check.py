"""One server against one run: prompts, log-probabilities of training's answers, greedy replies one at a time and sixteen at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import get_args

from eval.served.judge import (
    adapter_effect,
    gaps_between,
    greedy_fault,
    logps_fault,
    no_effect_fault,
    template_count_fault,
    template_fault,
)
from eval.served.ours import Policy
from eval.served.types import How, Measured, Report, Told, Tolerance
from graph.shared.console import say
from graph.shared.errors import UserError
from train.export.conversations import REPLY_TOKENS, Conversation, read_conversations
from train.export.export import language_run
from train.export.server import Reply, Server, at_once

BATCHES = (1, 16)


def check_server(server: Server, name: str, run: Path, base: str, conversations: int, tolerance: Tolerance) -> Report:
    """Compare the model `name` of a server ("": the one called like the run, or the only one) with `run`, and its base with the run's.

    UserError when the server cannot be reached, or has no such model.
    """
    record = language_run(run)
    parents = server.parents()
    name = name or _name_of(run, parents, server.called)
    for each in filter(None, (name, base)):
        if each not in parents:
            raise UserError(f"{server.called}: no model {each!r}", f"one of {', '.join(parents)}", "give its name")
    say(f"opening {run}")
    policy = Policy(run, record)
    check = _Check(server, policy, str(run), tolerance)
    _, asked = read_conversations(record, policy.tokenizer, conversations)
    check.model(name, asked, "trained")
    if policy.has_adapter:
        rows = [each.row for each in asked]
        effect = adapter_effect(policy.along(rows, "trained"), policy.along(rows, "bare"))
        if effect <= tolerance.token:
            check.faults.append(no_effect_fault(str(run), effect))
        if below := base or parents[name]:
            check.model(below, asked, "bare")
        else:
            check.unchecked.append(
                f"{name} without its adapter: {server.called} names no base; name it with --base-name, if it serves one"
            )
    return Report(
        server.called,
        str(run),
        tolerance,
        tuple(check.measured),
        tuple(check.faults),
        tuple(dict.fromkeys(check.unchecked)),
    )


@dataclass
class _Check:
    """What one check has found so far."""

    server: Server
    policy: Policy
    run: str
    tolerance: Tolerance
    measured: list[Measured] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def model(self, name: str, asked: Sequence[Conversation], expected: How) -> None:
        """All that there is to check of one served model, which should say what the run says as `expected`."""
        if not self._training(name, asked, expected):
            self.unchecked.append(
                f"{name}: log-probabilities of training's answers: the server gives none for the tokens of a prompt"
            )
        same_prompts = self._template(name, asked)
        if same_prompts is False:
            return
        for batch in BATCHES:
            self._greedy(name, asked, expected, batch, same_prompts is None)

    def _training(self, name: str, asked: Sequence[Conversation], expected: How) -> bool:
        """Log-probabilities of the answers that training saw, one at a time; False when the server does not tell them."""
        say(f"{name}: {len(asked)} conversations of training")
        told: list[Told] = []
        for row in (each.row for each in asked):
            logps = self.server.prompt_logps(name, row.ids)
            if logps is None:
                return False
            told.append(Told(row, logps[row.prompt_tokens - 1 :]))
        self._compare(name, told, expected, 1, greedy=False)
        return True

    def _template(self, name: str, asked: Sequence[Conversation]) -> bool | None:
        """Whether the server writes prompts as training did; None when it does not tell their tokens."""
        for number, each in enumerate(asked, start=1):
            ours = each.prompt
            theirs = self.server.prompt_ids(name, each.messages)
            if theirs is None:
                return None
            if theirs != ours:
                self._fault(template_fault(name, self.run, number, ours, theirs, self.policy.tokenizer))
                return False
        return True

    def _greedy(self, name: str, asked: Sequence[Conversation], expected: How, batch: int, count: bool) -> None:
        """Greedy replies along which the run says the same; with `count`, prompts are told apart by their number of tokens."""
        repeated = filled(asked, batch)
        say(f"{name}: {len(repeated)} greedy replies, {batch} at once")
        replies = at_once(
            lambda each: self.server.greedy(name, each.messages, REPLY_TOKENS, self.policy.tokenizer), repeated, batch
        )
        for number, (each, reply) in enumerate(zip(repeated, replies, strict=True), start=1):
            if count and reply.prompt_tokens and reply.prompt_tokens != each.row.prompt_tokens:
                fault = template_count_fault(name, self.run, number, each.row.prompt_tokens, reply.prompt_tokens)
                self._fault(fault)
                return
        told = [each for each in map(_told, repeated, replies) if each is not None]
        if told:
            self._compare(name, told, expected, batch, greedy=True)
        if len(told) < len(replies):
            self.unchecked.append(f"{name}: some greedy replies: the server does not tell their tokens")

    def _compare(self, name: str, told: Sequence[Told], expected: How, batch: int, greedy: bool) -> None:
        """Note the gaps, and a fault when they are out of tolerance; one fault of log-probabilities a model is enough."""
        rows = [each.row for each in told]
        ours = self.policy.along(rows, expected)
        gaps = gaps_between(told, ours)
        behind = [
            (gap, row, place) for row, own in zip(rows, ours, strict=True) for place, gap in enumerate(own.behind)
        ]
        share = sum(gap == 0 for gap, _, _ in behind) / len(behind)
        kind, tokens = "greedy" if greedy else "training", sum(len(each.logps) for each in told)
        self.measured.append(
            Measured(name, expected == "trained", kind, batch, len(told), tokens, gaps, share if greedy else None)  # type: ignore[arg-type]
        )
        if any(fault.startswith(f"{name}: ") for fault in self.faults):
            return
        if not self.tolerance.holds(gaps):
            near = {expected: gaps}
            if self.policy.has_adapter:
                near |= {
                    how: gaps_between(told, self.policy.along(rows, how)) for how in get_args(How) if how != expected
                }
            self._fault(logps_fault(name, self.run, expected, near, batch, self.tolerance))
            return
        worst, row, place = max(behind, key=lambda each: each[0])
        if greedy and worst > self.tolerance.conversation:
            written = self.policy.tokenizer.decode(row.ids[row.prompt_tokens : row.prompt_tokens + place + 1])
            self._fault(greedy_fault(name, written, worst))

    def _fault(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)


def filled(asked: Sequence[Conversation], batch: int) -> list[Conversation]:
    """The conversations, again and again where they do not fill one batch."""
    return list(islice(cycle(asked), max(len(asked), batch)))


def _told(each: Conversation, reply: Reply) -> Told | None:
    if not reply.ids or len(reply.ids) != len(reply.logps):
        return None
    return Told(each.answered_by(reply.ids), reply.logps)


def _name_of(run: Path, parents: dict[str, str], server: str) -> str:
    if run.resolve().name in parents:
        return run.resolve().name
    tops = [name for name in parents if name not in parents.values()]
    if len(tops) == 1:
        return tops[0]
    raise UserError(
        f"{server}: {len(parents)} models ({', '.join(parents)})", "one of them", "name it: openai:NAME@URL"
    )

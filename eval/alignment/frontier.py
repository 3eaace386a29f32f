"""Reward at equal KL, and its report: each system's runs (several strengths, several seeds) make a frontier, read off where all systems reach.

A method that moves a policy farther can always be given more reward; so systems are compared at the same KL to the reference. A frontier starts at the reference itself (KL 0) and is linear between its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from eval.alignment.measure import Load, MeasuredRun, PromptFigures, RewardAtKl, measure_runs
from eval.alignment.sample import Draw, SamplingSettings, draw_here
from eval.plots import figure_png
from eval.report import Appendix, ReportFigure, escape_markdown, report_html, sections
from eval.statistics import Verdict, compare_seeds
from eval.tables import Table, as_text
from graph.shared.jsonl import write_json
from train.run.data import read_responses

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the largest KL that every frontier reaches: where they are read off."""


def equal_kl(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float]) -> list[RewardAtKl]:
    """Every system at every KL of the grid, with its difference from the system of the first run: prompts and seeds resampled, p
    corrected over the systems at one KL.
    """
    first, *others = dict.fromkeys(run.system for run in runs)
    found = []
    for kl in kl_grid(runs):
        rewards = {
            system: rewards_by_seed(of_system(runs, system), reference_rewards, kl) for system in (first, *others)
        }
        verdicts = compare_seeds({system: (rewards[system], rewards[first]) for system in others})
        for system, by_seed in rewards.items():
            own = tuple(fmean(values) for values in by_seed)
            found.append(RewardAtKl(system, kl, fmean(own), verdicts.get(system), own))
    return found


def kl_grid(runs: Sequence[MeasuredRun]) -> list[float]:
    """SHARES of the largest KL that the frontier of every system and seed reaches; none where one never leaves the reference."""
    farthest: defaultdict[tuple[str, int], float] = defaultdict(float)
    for run in runs:
        key = (run.system, run.seed)
        farthest[key] = max(farthest[key], run.kl)
    common = min(farthest.values())
    return [share * common for share in SHARES] if common > 0 else []


def rewards_by_seed(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float) -> list[list[float]]:
    """One system's reward at a KL: a list a seed, in their order, a figure a prompt."""
    seeds = sorted({run.seed for run in runs})
    return [frontier_at([run for run in runs if run.seed == seed], reference_rewards, kl) for seed in seeds]


def frontier_at(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float) -> list[float]:
    """Reward on each prompt at a KL between two runs of one seed (or the reference and a run), linear between them."""
    points = [(0.0, list(reference_rewards))]
    points += sorted(((run.kl, [one.reward for one in run.figures]) for run in runs), key=lambda point: point[0])
    points = [point for point in points if point[0] >= 0]
    for (low, below), (high, above) in pairwise(points):
        if low <= kl <= high:
            share = (kl - low) / (high - low) if high > low else 1.0
            return [(1 - share) * left + share * right for left, right in zip(below, above, strict=True)]
    return points[-1][1]


def of_system(runs: Sequence[MeasuredRun], system: str) -> list[MeasuredRun]:
    """The runs of one system."""
    return [run for run in runs if run.system == system]


FRONTIER_FIGURE = "frontier.png"
FIGURE_LABELS = {
    "correct": "correct",
    "well_formed": "form",
    "cited": "cited",
    "distinct": "distinct",
    "self_bleu": "self-BLEU",
    "words": "words",
}
"""Figures of a run beside its reward, KL and entropy, as its table calls them."""


@dataclass(frozen=True)
class Alignment:
    """All that was measured: runs, their reference, and every system at equal KL."""

    runs: tuple[MeasuredRun, ...]
    reference: tuple[PromptFigures, ...]
    drawing: SamplingSettings
    equal: tuple[RewardAtKl, ...]


def align(runs: Sequence[MeasuredRun], reference: Sequence[PromptFigures], drawing: SamplingSettings) -> Alignment:
    """The measurement with its comparison at equal KL."""
    return Alignment(tuple(runs), tuple(reference), drawing, tuple(equal_kl(runs, [one.reward for one in reference])))


def align_runs(
    folders: Sequence[Path],
    data: Path,
    split: str,
    limit: int | None,
    drawing: SamplingSettings,
    load: Load,
    draw: Draw = draw_here,
    keep: Path | None = None,
) -> Alignment:
    """The runs measured on the (first) prompts of a split of scored responses, and compared at equal KL."""
    rows = read_responses(data / f"{split}.jsonl")[:limit]
    return align(*measure_runs(folders, rows, drawing, load, draw, keep), drawing)


def runs_table(found: Alignment) -> Table:
    """A row a run, the reference last."""
    rows = [
        (
            run.folder.name,
            run.system,
            f"{run.record.beta:g}",
            "–" if run.record.beta_reward is None else f"{run.record.beta_reward:g}",
            str(run.seed),
            *_figure_cells(run.figures),
            f"{run.record.train_seconds:.0f}",
        )
        for run in found.runs
    ]
    rows.append(("reference", "–", "–", "–", "–", *_figure_cells(found.reference), "–"))
    head = ("run", "system", "β_π", "β_r", "seed", "reward", "KL", "entropy", *FIGURE_LABELS.values(), "train s")
    note = (
        f"{len(found.reference)} held-out prompts, {found.drawing.count} samples each at temperature 1, at most "
        f"{found.drawing.max_tokens} tokens; KL = E[log π − log π_ref] and entropy = E[−log π] in nats, from the samples. "
        "Form: ###Reason … ###Answer. Cited: cites passages, and only those that the prompt shows. Distinct: different answers among a "
        "prompt's samples, as a share; self-BLEU: of each sample against the others. Both tell how far a policy has gone to one mode."
    )
    return Table("Runs", head, tuple(rows), note)


def equal_table(found: Alignment) -> Table:
    """Reward of every system at equal KL; differences are from the first."""
    rows = tuple(
        (
            f"{at.kl:.3g}",
            at.system,
            f"{at.reward:.4f}",
            ", ".join(f"{reward:.3f}" for reward in at.by_seed),
            *_difference_cells(at.difference),
        )
        for at in found.equal
    )
    first = found.equal[0].system if found.equal else "none"
    note = (
        f"Rewards read off each seed's frontier (linear between its runs, from the reference on) and averaged over seeds; differences "
        f"from {first} with 95 % bootstrap intervals over prompts and seeds; p of the sign test over prompts, after Holm over the systems "
        f"at one KL. {verdict(found)}"
    )
    return Table("Reward at equal KL", ("KL", "system", "reward", "by seed", "difference", "p"), rows, note)


def verdict(found: Alignment) -> str:
    """In words: at the largest common KL, which systems the first one is above, below, or not told apart from."""
    if not found.equal:
        return "No system left the reference: there is nothing to compare."
    last = found.equal[-1].kl
    words = []
    for at in (at for at in found.equal if at.kl == last and at.system != found.equal[0].system):
        assert at.difference is not None
        side = "below" if at.difference.interval.mean > 0 else "above"
        words.append(f"{side if at.difference.shown else 'not told apart from'} {at.system}")
    return f"At KL {last:.3g}, {found.equal[0].system} is {', '.join(words) or 'alone'}."


def alignment_json(found: Alignment) -> dict[str, Any]:
    """One object: what stands in the tables, and every prompt's figures."""
    return {
        "drawing": asdict(found.drawing),
        "verdict": verdict(found),
        "equal_kl": [asdict(at) for at in found.equal],
        "reference": [asdict(one) for one in found.reference],
        "runs": [
            {
                "folder": str(run.folder),
                "system": run.system,
                "seed": run.seed,
                "beta": run.record.beta,
                "beta_reward": run.record.beta_reward,
                "reward": run.reward,
                "kl": run.kl,
                "prompts": [asdict(one) for one in run.figures],
            }
            for run in found.runs
        ],
    }


def write_alignment(found: Alignment, out: Path) -> None:
    """alignment.json, alignment.md, alignment.html and frontier.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    made = as_appendix(found)
    write_json(out / "alignment.json", alignment_json(found))
    for picture in made.pictures:
        (out / picture.file).write_bytes(picture.png)
    parts = ["# Alignment", escape_markdown(verdict(found)), *sections(made.tables, made.pictures)]
    (out / "alignment.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    page = report_html("Alignment", verdict(found), made.tables, made.pictures)
    (out / "alignment.html").write_text(page, encoding="utf-8")


def as_appendix(found: Alignment) -> Appendix:
    """The measurement as a part of a report."""
    frontier = ReportFigure(
        "Reward against KL",
        FRONTIER_FIGURE,
        draw_frontiers(found),
        "Expected reward against KL to the reference",
        "Expected reward against KL to the reference on held-out prompts: a colour a system, a line a seed, a dot a run.",
    )
    return Appendix((equal_table(found), runs_table(found)), (frontier,), {"alignment": alignment_json(found)})


def tables_as_text(found: Alignment) -> str:
    """Both tables as a terminal shows them."""
    return "\n\n".join(f"{as_text(table)}\n{table.note}" for table in (runs_table(found), equal_table(found)))


def draw_frontiers(found: Alignment) -> bytes:
    """A PNG: reward against KL, a line a system and seed, from the reference on."""
    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    start = (0.0, fmean(one.reward for one in found.reference))
    for number, system in enumerate(dict.fromkeys(run.system for run in found.runs)):
        runs = of_system(found.runs, system)
        for place, seed in enumerate(sorted({run.seed for run in runs})):
            points = sorted([start, *((run.kl, run.reward) for run in runs if run.seed == seed)])
            label = system if place == 0 else None
            axes.plot(*zip(*points, strict=True), "o-", color=f"C{number}", alpha=0.7, markersize=4, label=label)
    axes.plot(*start, "k*", markersize=12, label="reference")
    axes.set_xlabel("KL to the reference, nats")
    axes.set_ylabel("expected reward")
    axes.set_title(f"{len(found.reference)} held-out prompts; a line a seed", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure_png(figure)


def _difference_cells(verdict: Verdict | None) -> tuple[str, str]:
    if verdict is None:
        return "–", "–"
    found = verdict.interval
    return f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]", f"{verdict.corrected_p:.2g}"


def _figure_cells(figures: Sequence[PromptFigures]) -> tuple[str, ...]:
    def mean(name: str) -> float:
        return fmean(float(getattr(one, name)) for one in figures)

    shares = (f"{mean(name):.3f}" for name in FIGURE_LABELS if name != "words")
    return f"{mean('reward'):.4f}", f"{mean('kl'):.3f}", f"{mean('entropy'):.2f}", *shares, f"{mean('words'):.1f}"

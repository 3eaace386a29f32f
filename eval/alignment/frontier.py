"""Compares systems by their reward at equal KL: each system's runs (several β and seeds) form a frontier, read off at KLs that all systems reach.

A method that moves a policy farther from the reference can always gain more reward, so systems are compared at the same KL. A frontier starts
at the reference (KL 0) and is linear between its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from eval.alignment.measure import (
    ConstantAnswer,
    Load,
    MeasuredRun,
    PromptFigures,
    RewardAtKl,
    common_weights,
    constant_answers,
    measurable_weights,
    measure_runs,
    system_of,
)
from eval.alignment.sample import Draw, SamplingSettings
from eval.held_out import check_held_out
from eval.plots import figure_png
from eval.report import ReportFigure, escape_markdown, report_html, sections
from eval.statistics import SeedVerdict, check_paired_seeds, compare_seeds
from eval.tables import NONE, Table, as_text, figure_or_dash
from graph.shared.jsonl import write_json, write_text
from train.run.data import read_responses
from train.run.record import read_run

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the largest KL that every frontier reaches, at which the frontiers are read off."""


def equal_kl(
    runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], margin: float | None = None
) -> list[RewardAtKl]:
    """Every system's reward at every KL of the grid, with its difference from the system of the first run, paired by seed.

    p-values are Holm-corrected over the systems at each KL. With a `margin`, each difference is also tested for lying within ±`margin`.
    UserError for a seed that one system lacks.
    """
    systems = list(dict.fromkeys(run.system for run in runs))
    results = []
    for kl in kl_grid(runs):
        rewards = {system: rewards_by_seed(of_system(runs, system), reference_rewards, kl) for system in systems}
        verdicts = compare_seeds(rewards, systems[0], margin)
        for system, by_seed in rewards.items():
            seed_means = tuple(fmean(values) for values in by_seed.values())
            results.append(RewardAtKl(system, kl, fmean(seed_means), verdicts.get(system), seed_means))
    return results


def kl_grid(runs: Sequence[MeasuredRun]) -> list[float]:
    """SHARES of the largest KL that every system and seed reaches; empty if a seed of a system has no run of positive KL."""
    farthest: defaultdict[tuple[str, int], float] = defaultdict(float)
    for run in runs:
        key = (run.system, run.seed)
        farthest[key] = max(farthest[key], run.kl)
    common = min(farthest.values())
    return [share * common for share in SHARES] if common > 0 else []


def rewards_by_seed(
    runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float
) -> dict[int, list[float]]:
    """One system's reward on every prompt at a KL, by seed in ascending order."""
    seeds = sorted({run.seed for run in runs})
    return {seed: frontier_at([run for run in runs if run.seed == seed], reference_rewards, kl) for seed in seeds}


def frontier_at(runs: Sequence[MeasuredRun], reference_rewards: Sequence[float], kl: float) -> list[float]:
    """One seed's reward on each prompt at a KL, interpolated linearly between the reference (KL 0) and its runs; constant beyond the last run.

    Runs whose estimated KL is negative are left out.
    """
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


FIGURE_LABELS = {
    "correct": "correct",
    "well_formed": "form",
    "cited": "cited",
    "distinct": "distinct",
    "self_bleu": "self-BLEU",
    "words": "words",
}
"""Column headings of a run's figures other than reward, KL and entropy."""


@dataclass(frozen=True)
class Alignment:
    """A complete measurement. Systems whose difference is significantly within ±`margin` count as equal (None: not tested)."""

    runs: Sequence[MeasuredRun]
    reference: Sequence[PromptFigures]
    sampling: SamplingSettings
    constants: Sequence[ConstantAnswer] = ()
    margin: float | None = None

    @cached_property
    def equal(self) -> list[RewardAtKl]:
        """Every system at equal KL (`equal_kl`)."""
        return equal_kl(self.runs, [one.reward for one in self.reference], self.margin)


def align_runs(
    folders: Sequence[Path],
    data: Path,
    split: str,
    limit: int | None,
    sampling: SamplingSettings,
    load: Load,
    draw: Draw,
    cache_folder: Path,
    rewards: Mapping[str, float] | None = None,
    margin: float | None = None,
) -> Alignment:
    """Measure the runs on the first `limit` prompts (None: all) of a split of scored responses, and compare them at equal KL.

    UserError, before anything is measured, for a prompt or question that a run was trained on (except for the split train), for seeds as in
    `check_paired_seeds`, and for a reward component that cannot be measured.
    """
    rows = read_responses(data / f"{split}.jsonl")[:limit]
    if split != "train":
        check_held_out(folders, rows, data / f"{split}.jsonl")
    records = [read_run(folder) for folder in folders]
    seeds: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        seeds[system_of(record)].append(int(record.settings["seed"]))
    check_paired_seeds(seeds, next(iter(seeds)))
    weights = measurable_weights(rewards, "--reward") if rewards else common_weights(folders, records)
    runs, reference = measure_runs(folders, rows, weights, sampling, load, draw, cache_folder)
    return Alignment(runs, reference, sampling, constant_answers(rows, weights), margin)


def runs_table(alignment: Alignment) -> Table:
    """One row per run, then the reference and the constant answers."""
    rows: list[tuple[str, ...]] = []
    for run in alignment.runs:
        betas, seconds = (run.record.beta, run.record.beta_reward), f"{run.record.train_seconds:.0f}"
        settings = (*(figure_or_dash(beta, "g") for beta in betas), str(run.seed))
        rows.append((run.folder.name, run.system, *settings, *_figure_cells(run.figures), seconds))
    rows.append(("reference", *[NONE] * 4, *_figure_cells(alignment.reference), NONE))
    rows += [_constant_row(constant) for constant in alignment.constants]
    head = ("run", "system", "β_π", "β_r", "seed", "reward", "KL", "entropy", *FIGURE_LABELS.values(), "training, s")
    note = (
        f"{len(alignment.reference)} held-out prompts, {alignment.sampling.count} samples each at temperature 1, at most "
        f"{alignment.sampling.max_tokens} tokens; KL = E[log π − log π_ref] and entropy = E[−log π] in nats, from the samples. "
        "β_π: weight of the log-ratios to the reference; β_r: temperature of the rewards. "
        "Form: the share of answers in the form that the prompt asks for. Cited: the share that cite at least one passage and none that the prompt lacks. "
        "Distinct: the number of different answers as a share of a prompt's samples. Self-BLEU: the mean BLEU of each sample against the others. Distinct "
        "and self-BLEU show how far a policy has collapsed to one mode. "
        "Always yes and always no are constant, well-formed answers that cite the first passage."
    )
    return Table("Runs", head, tuple(rows), note)


def equal_table(alignment: Alignment) -> Table:
    """Every system's reward at equal KL, with its difference from that of the first system."""
    rows = []
    for at in alignment.equal:
        by_seed = ", ".join(f"{reward:.3f}" for reward in at.by_seed)
        difference = _difference_cells(at.difference, alignment.margin)
        rows.append((f"{at.kl:.3g}", at.system, f"{at.reward:.4f}", by_seed, *difference))
    first = alignment.equal[0].system if alignment.equal else "none"
    seeds = len(alignment.equal[0].by_seed) if alignment.equal else 0
    note = (
        f"Rewards read off each seed's frontier (linear between its runs, starting at the reference) and averaged over seeds; differences "
        f"from {first}, paired by seed, with 95 % bootstrap intervals over prompts and seeds; p of the exact sign-flip test over seeds, Holm-corrected over "
        f"the systems at one KL: {seeds} {'seed gives' if seeds == 1 else 'seeds give'} a p of at least {min(1.0, 2.0 ** (1 - seeds)):.2g}. "
    )
    head = ["KL", "system", "reward", "by seed", "difference", "p"]
    if alignment.margin is not None:
        head.append("equal, p")
        note += f"Equal: p of the test that the difference is within ±{alignment.margin:g}, by two one-sided t-tests over seeds. "
    return Table("Reward at equal KL", tuple(head), tuple(rows), note + verdict(alignment))


def verdict(alignment: Alignment) -> str:
    """One sentence: the systems that the first one is above, below, equal to or not distinguishable from, at the largest common KL."""
    if not alignment.equal:
        return "At least one system has a seed without a run of positive KL to the reference: the systems cannot be compared at equal KL."
    last = alignment.equal[-1].kl
    words = []
    for at in (at for at in alignment.equal if at.kl == last and at.system != alignment.equal[0].system):
        assert at.difference is not None
        words.append(f"{_position(at.difference, alignment.margin)} {at.system}")
    return f"At KL {last:.3g}, {alignment.equal[0].system} is {', '.join(words) or 'the only system'}."


def alignment_json(alignment: Alignment) -> dict[str, Any]:
    """One JSON object: the contents of the tables and every prompt's figures."""
    return {
        "drawing": asdict(alignment.sampling),
        "verdict": verdict(alignment),
        "equal_within": alignment.margin,
        "constants": [asdict(constant) for constant in alignment.constants],
        "equal_kl": [asdict(at) for at in alignment.equal],
        "reference": [asdict(one) for one in alignment.reference],
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
            for run in alignment.runs
        ],
    }


def write_alignment(alignment: Alignment, out: Path) -> None:
    """Write alignment.json, alignment.md, alignment.html and frontier.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    tables = (equal_table(alignment), runs_table(alignment))
    frontier = ReportFigure(
        "Reward against KL",
        "frontier.png",
        draw_frontiers(alignment),
        "Expected reward against KL to the reference",
        "Expected reward against KL to the reference on held-out prompts: one colour per system, one line per seed, one dot per run.",
    )
    write_json(out / "alignment.json", alignment_json(alignment))
    (out / frontier.file).write_bytes(frontier.png)
    parts = ["# Alignment", escape_markdown(verdict(alignment)), *sections(tables, (frontier,))]
    write_text(out / "alignment.md", "\n\n".join(parts) + "\n")
    write_text(out / "alignment.html", report_html("Alignment", verdict(alignment), tables, (frontier,)))


def tables_as_text(alignment: Alignment) -> str:
    """Both tables as text for a terminal."""
    return "\n\n".join(f"{as_text(table)}\n{table.note}" for table in (runs_table(alignment), equal_table(alignment)))


def draw_frontiers(alignment: Alignment) -> bytes:
    """A PNG: reward against KL, one line per system and seed, starting at the reference."""
    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    start = (0.0, fmean(one.reward for one in alignment.reference))
    for number, system in enumerate(dict.fromkeys(run.system for run in alignment.runs)):
        runs = of_system(alignment.runs, system)
        for index, seed in enumerate(sorted({run.seed for run in runs})):
            points = sorted([start, *((run.kl, run.reward) for run in runs if run.seed == seed)])
            label = system if index == 0 else None
            axes.plot(*zip(*points, strict=True), "o-", color=f"C{number}", alpha=0.7, markersize=4, label=label)
    axes.plot(*start, "k*", markersize=12, label="reference")
    axes.set_xlabel("KL to the reference, nats")
    axes.set_ylabel("expected reward")
    axes.set_title(f"{len(alignment.reference)} held-out prompts; one line per seed", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure_png(figure)


def _position(difference: SeedVerdict, margin: float | None) -> str:
    """The position of the first system relative to the other; `difference` is the other's reward minus the first's."""
    if difference.shown:
        return "below" if difference.interval.mean > 0 else "above"
    return f"equal (within ±{margin:g}) to" if difference.equal else "not distinguishable from"


def _difference_cells(verdict: SeedVerdict | None, margin: float | None) -> tuple[str, ...]:
    if verdict is None:
        return (NONE,) * (2 if margin is None else 3)
    cells = (f"{verdict.interval:+.4f}", f"{verdict.corrected_p:.2g}")
    return cells if verdict.equal_p is None else (*cells, f"{verdict.equal_p:.2g}")


def _constant_row(constant: ConstantAnswer) -> tuple[str, ...]:
    shares = (f"{value:.3f}" for value in (constant.correct, constant.well_formed, constant.cited))
    figures = (f"{constant.reward:.4f}", NONE, NONE, *shares, NONE, NONE, f"{constant.words:.1f}")
    return (f"always {constant.answer}", *[NONE] * 4, *figures, NONE)


def _figure_cells(figures: Sequence[PromptFigures]) -> tuple[str, ...]:
    def mean(name: str) -> float:
        return fmean(float(getattr(one, name)) for one in figures)

    shares = (f"{mean(name):.3f}" for name in FIGURE_LABELS if name != "words")
    return f"{mean('reward'):.4f}", f"{mean('kl'):.3f}", f"{mean('entropy'):.2f}", *shares, f"{mean('words'):.1f}"

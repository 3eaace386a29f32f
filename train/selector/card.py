"""The model card of a selector (README.md of its folder)."""

from __future__ import annotations

from dataclasses import asdict

from train.selector.types import SelectorRecord
from train.shared.markdown import table

LIGHT = """Gradient-boosted trees that say how likely it is that a proposition helps to answer a question, from what retrieval \
knows of both. Made by `modegraph train selector`; no language model is called. Trees grow on train; dev stops them and sets \
temperature and threshold; the figures of test are of questions, propositions and passages that were used for neither."""
CROSS = """A cross-encoder of six layers reads a question beside each of the {depth} propositions that a light selector, gradient-boosted \
trees over what retrieval knows, ranks best; what counts is the sum of both logits. It started from the sentence encoder {start} with \
a new head and learned, with the light logit given, from {pairs:,} pairs of train: of each question its relevant propositions, the \
irrelevant ones that the light selector likes best, and a few drawn at random. Made by `modegraph train selector --size cross`; no \
language model is called. Dev chose the step ({best_step:,}), the weight of the cross-encoder's logit ({weight:.3f}, with {base:+.3f}), \
temperature and threshold; the figures of test are of questions, propositions and passages that were used for none of these."""
LIGHT_FILES = (
    "`selector.safetensors` holds the trees as plain arrays, all settings and figures stand in `selector.json`."
)
SHARING = "Of {names} this holds for the questions only: its splits share passages."
CROSS_FILES = """`cross/` holds the cross-encoder, `cross.json` how its logit is added to that of the trees in `selector.safetensors`; \
all settings and figures stand in `selector.json`."""
USE = """## Use

`modegraph ask INDEX "question" --mode local --selector FOLDER` (and `eval retrieval --selector FOLDER`), with an index of the \
same encoder. """
RANKING = """Mean average precision a question, over the propositions of the passages that it was published with; ± one \
standard error of the mean difference."""


def selector_card(record: SelectorRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        ("encoder", record.encoder),
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"rows of {split}", f"{count:,}") for split, count in record.examples.items()),
        ("trees", record.trees),
        ("temperature", f"{record.temperature:.3f}"),
        (f"threshold (recall {record.settings['target_recall']:g} on dev)", f"{record.threshold:.4f}"),
        ("seconds of training", f"{record.train_seconds:.1f}"),
        ("seconds of training, all cores together", f"{record.processor_seconds:.1f}"),
    ]
    cross = record.cross
    about = LIGHT if cross is None else CROSS.format_map(asdict(cross))
    if record.sharing_passages:
        about += " " + SHARING.format(names=", ".join(record.sharing_passages))
    by_light = {(each.dataset, each.split): each.selector for each in cross.light_ranked} if cross is not None else {}
    ranked = [
        (
            each.dataset,
            each.split,
            each.questions,
            f"{each.selector:.3f}",
            *([f"{by_light[each.dataset, each.split]:.3f}"] if by_light else []),
            f"{each.cosine:.3f}",
            f"{each.selector - each.cosine:+.3f} ± {each.standard_error:.3f}",
        )
        for each in record.ranked
    ]
    header = ("data", "split", "questions", "selector", *(["light"] if by_light else []), "cosine", "minus cosine")
    bins = [
        (f"{b.low:g} to {b.high:g}", f"{b.examples:,}", f"{b.mean_probability:.3f}", f"{b.share_relevant:.3f}")
        for b in record.reliability
    ]
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-ranking\n---",
        f"# A {record.size} selector of propositions",
        about,
        table(("what", "value"), facts),
        "## Ranking",
        RANKING,
        table(header, ranked),
        "## Test",
        table(("figure", "value"), [(name, f"{value:.4g}") for name, value in record.figures.items()]),
        "## Reliability on test\n\n![reliability](reliability.png)",
        table(("probability", "propositions", "mean probability", "share relevant"), bins),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        USE + (LIGHT_FILES if cross is None else CROSS_FILES),
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"

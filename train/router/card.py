"""The model card of a router (README.md of its folder)."""

from __future__ import annotations

from collections.abc import Sequence

from train.router.types import Point, RouterRecord
from train.shared.markdown import table

ABOUT = """Chooses the retrieval mode of a question: gradient-boosted trees expect each mode's Recall@5 from what is known of the \
question before anything is retrieved, a price stands for milliseconds and tokens, and where no mode is surely worth more the \
default stays. Made by `modegraph train router`; no language model is called. Test was used for nothing but its table."""
USE = """## Use

`modegraph ask INDEX "question" --mode auto --router FOLDER` (and `eval retrieval --modes auto --router FOLDER`), with an index \
of the same encoder. The trace tells which mode was chosen and why. `router.safetensors` holds the trees as plain arrays, all \
settings and figures stand in `router.json`."""
COSTS = """Milliseconds are medians of each dataset, without the encoder; the router's include making the features. The oracle \
knows every question's result and takes the cheapest best mode."""


def router_card(record: RouterRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        ("encoder", record.encoder),
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"questions of {split}", f"{count:,}") for split, count in record.questions.items()),
        ("modes", ", ".join(record.modes)),
        ("default", record.default),
        ("price of a millisecond, in Recall@5", f"{record.price_per_ms:.3g}"),
        ("price of a token", f"{record.price_per_token:.3g}"),
        ("margin", f"{record.margin:g}"),
        ("tolerance", f"{record.settings['tolerance']:g}"),
        ("seconds of training", f"{record.train_seconds:.1f}"),
    ]
    sections = [
        "---\nlibrary_name: modegraph\n---",
        "# A router of questions to retrieval modes",
        ABOUT,
        table(("what", "value"), facts),
        "## Test",
        COSTS,
        point_table(record.test),
        "## Train and dev, each question by trees grown on others\n\nWhat prices and margin were chosen by.",
        point_table(record.unseen),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        USE,
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"


def point_table(points: Sequence[Point]) -> str:
    """Ways of routing, a line each."""
    rows = [
        (each.name, f"{each.recall:.3f}", f"{each.milliseconds:.2f}", f"{each.tokens:.0f}", tell_choices(each))
        for each in points
    ]
    return table(("routing", "Recall@5", "milliseconds", "tokens", "questions by mode"), rows)


def tell_choices(point: Point) -> str:
    """How many questions went where."""
    return ", ".join(f"{mode} {count:,}" for mode, count in point.chosen.items())

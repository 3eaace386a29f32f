"""The model card of a verifier (README.md of its folder)."""

from __future__ import annotations

from train.shared.markdown import table
from train.verifier.types import VerifierRecord

ABOUT = """Gradient-boosted trees that say how likely it is that passages do not say what a sentence says, from the words that both share: \
names, numbers, negations, opposites, their order and their neighbours. Made by `modegraph train verifier` from sentences that rules \
restated and broke on purpose; no encoder and no language model is called. Trees grow on train; dev stops them and sets temperature and \
threshold; the figures of test are of documents that were used for neither."""
LIMITS = """Words are what is read, so a sentence that says the same in wholly other words may be marked, and one that is wrong in a way that \
needs knowledge may pass. Negations and opposites are known in English only."""
USE = '`modegraph ask INDEX "question" --model SPEC --verifier FOLDER`, and `serve --verifier FOLDER`.'
RULE = "`rule`: every name and number of the claim stands somewhere in the passages or their titles."


def verifier_card(record: VerifierRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"claims of {split}", f"{count:,}") for split, count in record.claims.items()),
        ("trees", record.trees),
        ("temperature", f"{record.temperature:.3f}"),
        (f"threshold ({record.settings['false_marks']:g} of dev's supported claims)", f"{record.threshold:.4f}"),
        ("milliseconds a claim, of one core, features included", f"{record.milliseconds:.2f}"),
    ]
    measured = [
        (name, f"{value:.3f}", f"{record.rule[name]:.3f}" if name in record.rule else "–")
        for name, value in record.figures.items()
    ]
    kinds = [(kind, f"{count:,}", f"{share:.3f}") for kind, (count, share) in record.kinds.items()]
    bins = [
        (f"{b.low:g} to {b.high:g}", f"{b.examples:,}", f"{b.mean_probability:.3f}", f"{b.share_relevant:.3f}")
        for b in record.reliability
    ]
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-classification\n---",
        "# A verifier of cited sentences",
        f"{ABOUT}\n\n{LIMITS}",
        table(("what", "value"), facts),
        f"## Test\n\n{RULE}",
        table(("figure", "verifier", "rule"), measured),
        table(("claim", "claims", "share marked as unsupported"), kinds),
        "## Reliability on test\n\n![reliability](reliability.png)",
        table(("probability", "claims", "mean probability", "share unsupported"), bins),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        f"## Use\n\n{USE}",
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"

"""Only answers to the same questions can be compared: the check that the judge and `eval diff` share."""

from collections.abc import Mapping

from graph.shared.errors import UserError

EXPECTED, REMEDY = "the same questions in both", "compare runs over the same questions"


def check_same_questions(a: Mapping[str, str], b: Mapping[str, str]) -> None:
    """UserError naming the first question (id to text) that only one side has, or whose text differs."""
    only = [(key, "B") for key in a if key not in b] + [(key, "A") for key in b if key not in a]
    if only:
        key, lacking = only[0]
        raise UserError(
            f"{len(only):,} questions are on one side only, {key!r} not in {lacking} first", EXPECTED, REMEDY
        )
    for key, text in a.items():
        if text != b[key]:
            raise UserError(f"question {key!r} is {text!r} in A and {b[key]!r} in B", EXPECTED, REMEDY)

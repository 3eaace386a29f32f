"""A reading set small enough to check by hand: one place per passage, questions about one or two passages, some without an answer."""

from data_synth.reading.sets import ReadingQuestion, ReadingSet
from graph.types import Excerpt

TEXTS = {
    "tarn": "Tarn has a ferry. The ferry was built in 1911 by Ida Corrow.",
    "ostrey": "Ostrey has a lighthouse. The lighthouse was built in 1884 by Hanne Sund.",
    "sundrey": "Sundrey has a mill. The mill was burnt down in 1903.",
    "saltmere": "Saltmere is a town. Ida Corrow was born in Saltmere.",
    "corrow": "Corrow is a hamlet. Hanne Sund was born in Corrow.",
}


def question(
    name: str, text: str, answers: tuple[str, ...], gold: tuple[str, ...], split: str = "train", kind: str = "single"
) -> ReadingQuestion:
    """A question whose context contains every passage."""
    evidence = tuple(TEXTS[one].split(". ")[-1] for one in gold)
    return ReadingQuestion(name, text, answers, gold, tuple(TEXTS), evidence, kind, split)


QUESTIONS = (
    question("q0", "When was the ferry of Tarn built?", ("1911",), ("tarn",)),
    question("q1", "Who built the ferry of Tarn?", ("Ida Corrow", "Corrow"), ("tarn",)),
    question("q2", "When was the lighthouse of Ostrey built?", ("1884",), ("ostrey",)),
    question("q3", "When did the mill of Sundrey burn down?", ("1903", "in 1903"), ("sundrey",)),
    question(
        "q4", "Where was the builder of the ferry of Tarn born?", ("Saltmere",), ("tarn", "saltmere"), kind="multi"
    ),
    question("q5", "Where was the builder of the lighthouse born?", ("Corrow",), ("ostrey", "corrow"), kind="multi"),
    question("q6", "Is Saltmere a town?", ("Yes",), ("saltmere",), kind="boolean"),
    question("q7", "Is Corrow a town?", ("no",), ("corrow",), kind="boolean"),
    question("q8", "Is Tarn a town?", ("no",), ("tarn",), kind="boolean"),
    question("q9", "Who painted the mill of Sundrey?", (), ("sundrey",), kind="unanswerable"),
    question("q10", "What was built in 1884?", ("the lighthouse",), ("ostrey",)),
    question("q11", "Whose ferry is it?", ("nobody knows",), ("tarn",)),
)


def isles() -> ReadingSet:
    """The set of all passages and questions."""
    passages = {one: Excerpt(one, one.title(), text, source=one) for one, text in TEXTS.items()}
    return ReadingSet("isles", passages, QUESTIONS)

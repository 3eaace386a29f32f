"""The nouns of an explanation."""

from dataclasses import dataclass

from graph.shared.modes import Mode
from graph.shared.types import Passage, Scored


@dataclass(frozen=True)
class Standing:
    """Where the passage stands in one mode.

    `rank` counts passages from 1; it, `score` and `path` are missing where the mode does not rank the passage. `ranked` is how many
    passages it ranked, as deep as was looked; `found` how many the question gets, `first_score` and `last_score` those of the first
    and the last of these. `steps` tell what the mode did.
    """

    mode: Mode
    rank: int | None
    score: float | None
    ranked: int
    found: int
    first_score: float | None
    last_score: float | None
    path: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Clue:
    """A word or a name of the question, whether the passage has it, and how many passages of the index do."""

    text: str
    passages: int
    held: bool


@dataclass(frozen=True)
class Stated:
    """A proposition of the passage: its cosine to the question, and how many of all propositions lie at least as near."""

    id: str
    text: str
    cosine: float
    rank: int


@dataclass(frozen=True)
class Lead:
    """The best link of `hops` from one other passage: its proposition mentions `entity`, which the explained one is called, or says more of.

    `rank` is where that passage stands by itself; `followed` whether that is high enough for its links to be followed. `worth` is what
    the link makes of the explained passage, on the scale of the scores of `hops`.
    """

    passage: Passage
    rank: int
    proposition: str
    entity: str
    by_title: bool
    worth: float
    followed: bool


@dataclass(frozen=True)
class Explanation:
    """Why a question finds a passage, or does not.

    `standings` come mode by mode, that of `mode` first; `before` are the passages that the question gets in `mode` and that stand
    before the explained one. `words` and `names` are those of the question, the rarest first; `propositions` the nearest to it of the
    passage; `own_rank` and `own_score` are what `hops` gives the passage by itself, of which `lift` is by the question's words, those in
    `lifted_by` (the first most; words of a name that calls a document are not among them); `leads` are the best links to it.
    """

    question: str
    passage: Passage
    mode: Mode
    top_k: int
    standings: tuple[Standing, ...]
    before: tuple[Scored[Passage], ...]
    words: tuple[Clue, ...]
    names: tuple[Clue, ...]
    propositions: tuple[Stated, ...]
    own_rank: int
    own_score: float
    lift: float
    lifted_by: tuple[str, ...]
    leads: tuple[Lead, ...]

"""Scores of short answers against gold ones: exact match and token F1 as in SQuAD, MuSiQue and HotpotQA, and containment.

Every metric takes an answer and the accepted answers (aliases), and returns a score from 0 to 1; `f1_beyond_question` also takes the question."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from graph.text.word_forms import MARKS, UNSPACED

HOTPOT_LABELS = frozenset({"yes", "no", "noanswer"})
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORD = re.compile(rf"[{UNSPACED}]|−?(?:(?![{UNSPACED}])\w|[{MARKS}])+|[^\w\s]")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """An answer normalised as in SQuAD (Rajpurkar et al. 2016, evaluate-v1.1): lower case, no punctuation, no articles.

    >>> normalise("The  Grey-Heron!")
    'greyheron'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1.0 when the normalised answer equals a normalised gold answer, else 0.0 (SQuAD; MuSiQue with its aliases)."""
    return float(any(normalise(answer) == normalise(gold) for gold in golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """F1 between the bags of normalised words of the answer and of the best-matching gold answer; 1 for two empty bags.

    As in the scripts of SQuAD 2.0 and MuSiQue; the script of SQuAD 1.1 differs only in that two empty bags score 0.

    >>> token_f1("built in 1911 in Saltmere", ["in 1911"])
    0.5714285714285714
    """
    return max((_bag_f1(normalise(answer).split(), normalise(gold).split()) for gold in golds), default=0.0)


def f1_beyond_question(question: str, answer: str, golds: Sequence[str]) -> float:
    """`token_f1` over the words that are not in the question, so that repeating the question gains nothing.

    A gold answer that has no such words is compared by all of its words.

    >>> question, golds = "Which cancer of the lung is most common?", ["NSCLC is the most common cancer of the lung."]
    >>> [token_f1(answer, golds) for answer in ("NSCLC", "Lung is the most common cancer of the lung.")]
    [0.25, 0.8571428571428571]
    >>> [f1_beyond_question(question, answer, golds) for answer in ("NSCLC", "Lung is the most common cancer of the lung.")]
    [1.0, 0.0]
    """
    known = set(normalise(question).split())

    def f1(gold: str) -> float:
        gold_words, answer_words = (
            [word for word in normalise(text).split() if word not in known] for text in (gold, answer)
        )
        return _bag_f1(answer_words, gold_words) if gold_words else token_f1(answer, [gold])

    return max(map(f1, golds), default=0.0)


def hotpot_f1(answer: str, golds: Sequence[str]) -> float:
    """`token_f1` as in HotpotQA's and 2WikiMultihopQA's scripts: if the answer or the gold answer is yes, no or noanswer, only equality counts.

    An empty answer scores 0, even against an empty gold answer.

    >>> token_f1("no one", ["no"]), hotpot_f1("no one", ["no"])
    (0.6666666666666666, 0.0)
    """
    return max((_hotpot_f1(normalise(answer), normalise(gold)) for gold in golds), default=0.0)


def contains_answer(answer: str, golds: Sequence[str]) -> float:
    """1.0 when the `match_words` of the answer contain those of a gold answer in sequence (PopQA's accuracy, restricted to whole words), else 0.0.

    >>> contains_answer("It was built in 1911.", ["1911"]), contains_answer("in 19112", ["1911"])
    (1.0, 0.0)
    >>> contains_answer("他住在北京。", ["北京"]), contains_answer("Он живёт в «Москве»", ["Москве"])
    (1.0, 1.0)
    """
    words, all_gold_words = f" {' '.join(match_words(answer))} ", [" ".join(match_words(gold)) for gold in golds]
    return float(any(f" {gold_words} " in words for gold_words in all_gold_words if gold_words))


def match_words(text: str) -> list[str]:
    """The words of a text, normalised and without any punctuation; a symbol, and each character in scripts without spaces, is a word.

    >>> match_words("The “Grey-Heron”"), match_words("東京都 2020"), match_words("−5 °C, €20")
    (['greyheron'], ['東', '京', '都', '2020'], ['−5', '°', 'c', '€', '20'])
    """
    words = _WORD.findall(normalise(text.replace("’", "'")))
    return [word for word in words if len(word) > 1 or not unicodedata.category(word).startswith("P")]


def word_f1(left: Sequence[str], right: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of two bags of words; 0 if they share none."""
    shared = (Counter(left) & Counter(right)).total()
    return 2 * shared / (len(left) + len(right)) if shared else 0.0


def _bag_f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    return word_f1(answer, gold) if answer and gold else float(answer == gold)


def _hotpot_f1(answer: str, gold: str) -> float:
    if answer != gold and HOTPOT_LABELS & {answer, gold}:
        return 0.0
    return word_f1(answer.split(), gold.split())

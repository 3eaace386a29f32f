"""Our answer metrics compared with the definitions in the reference scripts, reimplemented here, on answers of public sets and of our examples."""

import itertools
import math
import re
from collections import Counter
from functools import cache

import pytest
from nltk.stem.porter import PorterStemmer
from nltk.tokenize import NLTKWordTokenizer
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eval.metrics.answers import bleu, meteor, rouge_f
from graph.answer.match import contains_answer, exact_match, hotpot_f1, token_f1
from tests.eval.pairs import example_pairs, public_pairs

PORTER = PorterStemmer()
STEM = cache(PORTER.stem)


@pytest.fixture(scope="module", params=["examples", "public"])
def pairs(request):
    return example_pairs() if request.param == "examples" else public_pairs()


def squad_normalised(text):
    """The steps of evaluate-v1.1.py in order: lower-case, drop punctuation, drop articles, collapse spaces."""
    plain = "".join(letter for letter in text.lower() if letter not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""")
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def musique_f1(answer, gold):
    """MuSiQue's metrics/answer.py (with SQuAD 2.0's rule for answers without words): the F1 of the words in common."""
    left, right = squad_normalised(answer).split(), squad_normalised(gold).split()
    common = sum(min(count, right.count(word)) for word, count in Counter(left).items())
    if not left or not right:
        return float(left == right)
    if not common:
        return 0.0
    precision, recall = common / len(left), common / len(right)
    return 2 * precision * recall / (precision + recall)


def test_exact_match_and_f1_equal_those_of_squad_and_musique(pairs):
    for answer, golds in pairs:
        assert exact_match(answer, golds) == max(squad_normalised(answer) == squad_normalised(gold) for gold in golds)
        assert token_f1(answer, golds) == pytest.approx(max(musique_f1(answer, gold) for gold in golds), abs=1e-12)


def test_hotpot_f1_equals_that_of_the_hotpot_script(pairs):
    special = {"yes", "no", "noanswer"}
    for answer, golds in pairs:
        expected = []
        for gold in golds:
            one, two = squad_normalised(answer), squad_normalised(gold)
            zero = one != two and (one in special or two in special)
            empty = not one or not two
            expected.append(0.0 if zero or empty else musique_f1(answer, gold))
        assert hotpot_f1(answer, golds) == pytest.approx(max(expected), abs=1e-12)


def test_containment_matches_whole_words_only(pairs):
    for answer, golds in pairs:
        words = squad_normalised(answer).split()
        runs = {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, min(len(words), i + 20) + 1)}
        wanted = [tuple(squad_normalised(gold).split()) for gold in golds]
        if max(map(len, wanted)) <= 20:
            assert contains_answer(answer, golds) == any(gold in runs for gold in wanted)


def rouge_words(text):
    """rouge-score's tokenizer: lower case, letters a-z and digits, stems of words of more than three letters."""
    return [STEM(word) if len(word) > 3 else word for word in re.findall(r"[a-z0-9]+", text.lower())]


def f_measure(shared, answer, reference):
    if not shared:
        return 0.0
    precision, recall = shared / answer, shared / reference
    return 2 * precision * recall / (precision + recall)


def slow_rouge_n(answer, reference, n):
    grams = [Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w in map(rouge_words, (answer, reference))]
    return f_measure((grams[0] & grams[1]).total(), grams[0].total(), grams[1].total())


def slow_rouge_l(answer, reference):
    left, right = rouge_words(answer), rouge_words(reference)
    row = [0] * (len(right) + 1)
    for word in left:
        before = row[:]
        for column, other in enumerate(right, start=1):
            row[column] = before[column - 1] + 1 if word == other else max(before[column], row[column - 1])
    return f_measure(row[-1], len(left), len(right))


@pytest.mark.long
def test_rouge_equals_rouge_score_and_its_definition(pairs):
    from rouge_score.rouge_scorer import RougeScorer

    kinds = {"rouge1": 1, "rouge2": 2, "rougeL": 0}
    scorer = RougeScorer(list(kinds), use_stemmer=True)
    for answer, golds in pairs:
        library = [scorer.score(gold, answer) for gold in golds]
        for kind, n in kinds.items():
            score = rouge_f(answer, golds, kind)
            assert score == max(each[kind].fmeasure for each in library)
            by_definition = max(slow_rouge_n(answer, g, n) if n else slow_rouge_l(answer, g) for g in golds)
            assert score == pytest.approx(by_definition, abs=1e-12), (answer, golds)


def slow_bleu(answer, references):
    """BLEU-4 of one sentence (Papineni et al. 2002): effective order, exponential smoothing of orders without a match."""
    tokens = Tokenizer13a()(answer.rstrip()).split()
    references_tokens = [Tokenizer13a()(r.rstrip()).split() for r in references]
    logs, smooth = [], 1.0
    for n in range(1, 5):
        grams = Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
        best = Counter()
        for words in references_tokens:
            best |= Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        if not grams:
            break
        matched = (grams & best).total()
        if n == 1 and not matched:
            return 0.0
        if not matched:
            smooth *= 2
        logs.append(math.log((matched or 1 / smooth) / grams.total()))
    if not logs:
        return 0.0
    near = min((abs(len(words) - len(tokens)), len(words)) for words in references_tokens)[1]
    brevity = 1.0 if len(tokens) >= near else math.exp(1 - near / len(tokens))
    return brevity * math.exp(sum(logs) / len(logs))


@pytest.mark.long
def test_bleu_equals_sacrebleu_and_its_definition(pairs):
    import sacrebleu

    for answer, golds in pairs:
        score = bleu(answer, golds)
        library = sacrebleu.sentence_bleu(answer, list(golds), use_effective_order=True).score / 100
        assert score == pytest.approx(library, abs=1e-12)
        assert score == pytest.approx(slow_bleu(answer, golds), abs=1e-9), (answer, golds)


def slow_meteor(answer, reference):
    """METEOR's exact stage, then its Porter stage; each goes backwards from the last word and matches the last equal word still unmatched."""
    words, reference_words = ([w.lower() for w in NLTKWordTokenizer().tokenize(text)] for text in (answer, reference))
    free, free_reference, matched = set(range(len(words))), set(range(len(reference_words))), []
    for form in (str, STEM):
        forms = [form(word) for word in reference_words]
        for i in sorted(free, reverse=True):
            equal = [j for j in free_reference if forms[j] == form(words[i])]
            if equal:
                matched.append((i, max(equal)))
                free.discard(i)
                free_reference.discard(max(equal))
    if not matched:
        return 0.0
    matched.sort()
    chunks = 1 + sum((b[0] - a[0], b[1] - a[1]) != (1, 1) for a, b in itertools.pairwise(matched))
    precision, recall = len(matched) / len(words), len(matched) / len(reference_words)
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    return mean * (1 - 0.5 * (chunks / len(matched)) ** 3)


@pytest.mark.long
def test_meteor_equals_its_definition_without_synonyms(pairs):
    for answer, golds in pairs:
        assert meteor(answer, golds) == pytest.approx(max(slow_meteor(answer, gold) for gold in golds), abs=1e-9)


def test_scores_match_values_computed_by_hand():
    assert rouge_f("the cat sat", ["the cat ran"], "rouge1") == pytest.approx(2 / 3)
    assert rouge_f("the cat sat", ["the cat ran"], "rouge2") == pytest.approx(1 / 2)
    assert rouge_f("sat the cat", ["the cat sat"], "rougeL") == pytest.approx(2 / 3)
    assert rouge_f("", ["boat"], "rouge1") == 0.0
    # Precision 1/2 and recall 1; below, precision 2/3 and recall 1.
    assert rouge_f("в Москве.", ["«Москве»"], "rouge1") == pytest.approx(2 / 3)
    assert rouge_f("東京駅", ["東京"], "rougeL") == pytest.approx(4 / 5)
    assert bleu("the cat is on the mat", ["the cat is on the mat"]) == pytest.approx(1.0)
    # Two of three words in one run: precision 2/3, recall 2/3, one chunk of two: 2/3 · (1 − ½ · (1/2)³).
    assert meteor("the cat sat", ["the cat ran"]) == pytest.approx(2 / 3 * (1 - 0.5 * 0.125))
    assert meteor("boats", ["boat"]) == pytest.approx(0.5)

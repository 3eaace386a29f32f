"""Reading rows: the passages of a context, answers and refusals, nothing from another split, the same rows for the same seed."""

import json
import math
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_synth.dataset.validate import validate_file
from data_synth.reading.changed_questions import changed_question
from data_synth.reading.reading_form import READING, reading_problems, score_reading
from data_synth.reading.reading_rows import (
    FAULTY,
    NO_SPAN,
    REPEATED,
    SURPLUS,
    Distractors,
    ImportSettings,
    ReadingSettings,
    Share,
    passage_with_answer,
    reading_rows,
    rows_of_sets,
)
from data_synth.reading.sets import ReadingQuestion, ReadingSet, read_set
from data_synth.rows import Dropped, ReadingRow, reading_from_json, reading_to_json
from data_synth.texts import occurs_in, words_of
from graph.answer.prompt import NOT_FOUND
from graph.documents.questions import Question, split_by_hash
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.text.bm25 import bm25, idf
from graph.types import Excerpt
from tests.commands import run
from tests.data_synth.reading.world import QUESTIONS, TEXTS, isles
from tests.data_synth.reading.world import question as question_over


def make_rows(
    seed: int = 0, share: Share | None = None, source: ReadingSet | None = None, **changes: object
) -> list[ReadingRow]:
    rows = reading_rows(source or isles(), ReadingSettings(seed=seed, **changes), share or Share(passes=3))
    return [row for row in rows if isinstance(row, ReadingRow)]


def write_set(folder: Path, source: ReadingSet) -> Path:
    folder.mkdir(parents=True)
    write_jsonl(
        folder / "corpus.jsonl",
        ({"id": one.id, "title": one.title, "text": one.text} for one in source.passages.values()),
    )
    rows = []
    for each in source.questions:
        row = {"id": each.id, "question": each.text, "answers": list(each.answers), "gold_ids": list(each.gold_ids)}
        rows.append(
            row
            | {
                "context_ids": list(each.context_ids),
                "evidence": list(each.evidence),
                "kind": each.kind,
                "split": each.split,
            }
        )
    write_jsonl(folder / "questions.jsonl", rows)
    return folder


@given(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from([0.0, 0.2, 0.5]))
@settings(max_examples=40)
def test_answers_are_in_the_context_unless_the_question_is_refused(seed: int, distractors: int, without: float) -> None:
    by_id = {each.id: each for each in QUESTIONS}
    for row in make_rows(seed, distractors=distractors, without_gold=without):
        assert reading_problems(row) == []
        if row.question_id.endswith("-changed"):
            original = by_id[row.question_id.removesuffix("-changed")]
            assert (
                row.completion == NOT_FOUND
                and row.question != original.text
                and set(original.gold_ids) <= set(row.context_ids)
            )
            continue
        question, texts = by_id[row.question_id], [words_of(f"{one} {TEXTS[one]}") for one in row.context_ids]
        assert len(set(row.context_ids)) == len(row.context_ids) <= len(question.gold_ids) + max(distractors, 1) + 1
        if row.completion == NOT_FOUND:
            assert row.gold_ids == () and not (set(question.gold_ids) <= set(row.context_ids) and question.answers)
            if not question.is_yes_no:
                assert not any(occurs_in(answer, words) for answer in question.answers for words in texts)
            continue
        assert set(row.gold_ids) == set(question.gold_ids) <= set(row.context_ids)
        others = [words for one, words in zip(row.context_ids, texts, strict=True) if one not in question.gold_ids]
        if not question.is_yes_no:
            assert (
                not any(occurs_in(answer, words) for answer in question.answers for words in others)
                or len(question.gold_ids) > 1
            )


def test_a_changed_question_names_things_that_its_gold_passage_does_not() -> None:
    """Names and numbers of the gold passage are never inserted; other names of the context and other numbers are."""
    gold = "Later Bram Oakes met Adam Finch in 1901, 11 years before."
    passages = [gold, "Later Cora Swift met Dora Reed."]
    questions = {
        changed_question("When did Bram Oakes sail?", gold, passages, random.Random(seed)) for seed in range(20)
    }
    assert questions == {"When did Cora Swift sail?", "When did Dora Reed sail?"}
    numbers = {changed_question("Who is 12?", gold, passages, random.Random(seed)) for seed in range(200)}
    assert "Who is 11?" not in numbers and "Who is 10?" in numbers and "Who is 12?" not in numbers
    assert changed_question("Who is the largest?", gold, passages, random.Random(0)) == "Who is the smallest?"
    assert changed_question("Who came in March?", "Adam came in May or June.", [], random.Random(0)) not in {
        None,
        "Who came in May?",
    }
    assert changed_question("Is it Bram Oakes or 12?", gold, passages, random.Random(0)) is None
    assert changed_question("How many of the boats are there?", "", [], random.Random(0)) is None, (
        "“how many” should be unchanged"
    )
    assert changed_question("Was war die Halle im Winter?", "", [], random.Random(0)) is None, "German"


@pytest.mark.long
def test_a_fifth_of_the_rows_are_refusals_and_gold_is_equally_often_at_each_position() -> None:
    """If the share of refusals is set to 0, only the question without an answer is refused."""
    rows = [row for seed in range(150) for row in make_rows(seed)]
    refused = sum(row.completion == NOT_FOUND for row in rows) / len(rows)
    assert 0.13 < refused < 0.27
    of_three = [
        row.context_ids.index(row.gold_ids[0]) for row in rows if len(row.context_ids) == 3 and len(row.gold_ids) == 1
    ]
    share = Counter(of_three)
    assert all(0.25 < share[place] / len(of_three) < 0.42 for place in range(3))
    assert all(row.completion != NOT_FOUND or row.question_id == "q9" for row in make_rows(without_gold=0.0))


def test_every_row_has_passages_even_if_a_distractor_is_too_long() -> None:
    source = isles()
    long, *_ = source.passages
    passages = {**source.passages, long: replace(source.passages[long], text="granite " * 80)}
    for seed in range(40):
        for row in make_rows(seed, source=replace(source, passages=passages), without_gold=0.5, context_words=70):
            assert row.context_ids and (long not in row.context_ids or long in row.gold_ids)


def test_rows_with_the_same_context_are_adjacent() -> None:
    contexts = [row.id.partition("#")[2] for row in make_rows()]
    runs = [one for place, one in enumerate(contexts) if place == 0 or contexts[place - 1] != one]
    assert len(runs) == len(set(runs)) < len(contexts)


def test_yes_and_no_are_balanced_and_dropped_rows_are_counted() -> None:
    rows = list(reading_rows(isles(), ReadingSettings(without_gold=0.0)))
    answers = Counter(row.completion.split()[0] for row in rows if isinstance(row, ReadingRow))
    assert answers["yes"] == answers["no"] == 1
    dropped = Counter(row.why for row in rows if isinstance(row, Dropped))
    assert dropped == {SURPLUS: 1, NO_SPAN: 1}


def test_own_words_allows_free_form_answers_and_excludes_passages_that_paraphrase_them() -> None:
    texts = TEXTS | {"fork": "By Ida Corrow a Tarn ferry was built.", "sundrey": "Its mill burnt down."}
    passages = {one: replace(isles().passages["tarn"], id=one, title="", text=text) for one, text in texts.items()}
    question = question_over("q20", "Who made the ferry?", ("Ida Corrow, who built Tarn's ferry",), ("tarn",))
    source = ReadingSet("own", passages, (replace(question, context_ids=tuple(texts)),))
    assert not make_rows(source=source)
    rows = [row for seed in range(30) for row in make_rows(seed, source=source, own_words=True)]
    answered = [row for row in rows if row.answers]
    assert answered and {row.completion.partition(" [")[0] for row in answered} == {question.answers[0]}
    assert all(reading_problems(row) == [] for row in rows) and len(rows) > len(answered)
    assert {passage for row in rows for passage in row.context_ids} == set(texts) - {"fork"}
    assert not make_rows(source=source, own_words=True, answer_words=4)


def test_no_gold_passage_of_another_split_is_a_distractor() -> None:
    questions = tuple(replace(each, split="dev") if each.id in ("q2", "q10", "q5") else each for each in QUESTIONS)
    source = replace(isles(), questions=questions)
    rows = [row for seed in range(30) for row in make_rows(seed, source=source)]
    assert {row.split for row in rows} == {"train", "dev"}
    assert not any("ostrey" in row.context_ids for row in rows if row.split == "train")


def test_a_question_text_with_several_gold_documents_is_never_refused_and_gets_one_of_them() -> None:
    isles_set = isles()
    questions = [
        question_over(f"form-{one}", "What is it?", (answer,), (one,))
        for one, answer in (("saltmere", "a town"), ("corrow", "a hamlet"))
    ]
    source = replace(isles_set, questions=(*isles_set.questions, *questions))
    rows = [row for seed in range(30) for row in make_rows(seed, source=source, without_gold=0.5)]
    forms = [row for row in rows if row.question == "What is it?"]
    assert forms and all(row.answers for row in forms), "passages of other documents may answer it too"
    assert not any({"saltmere", "corrow"} <= set(row.context_ids) for row in forms)
    assert any(not row.answers for row in rows), "other questions should still be refused"


def test_a_changed_question_is_not_refused_if_a_passage_answers_it() -> None:
    """The new name comes from the context, where another passage may answer the changed question."""
    names = ("Tarn", "Rill", "Quay", "Ostrey", "Sundrey", "Corrow")
    texts = {
        name: f"Among all islands the lighthouse of {name} was built in {1900 + n} by the guild."
        for n, name in enumerate(names)
    }
    passages = {name: Excerpt(name, "", text, source=name) for name, text in texts.items()}
    questions = tuple(
        ReadingQuestion(
            name, f"When was the lighthouse of {name} built?", (str(1900 + n),), (name,), names, (), "", "train"
        )
        for n, name in enumerate(names)
    )
    for some in (questions, questions[:3]):
        source = ReadingSet("lights", passages, some)
        rows = [row for seed in range(20) for row in make_rows(seed, source=source, changed=1.0, without_gold=0.4)]
        changed = [row for row in rows if row.question_id.endswith("-changed")]
        assert not any(
            row.question == f"When was the lighthouse of {name} built?" for row in changed for name in row.context_ids
        )


def test_a_changed_question_may_name_things_from_other_sentences_of_the_gold_passage() -> None:
    """A name is not inserted if its sentence answers the changed question; a month or the like is inserted only if no passage contains it."""
    text = "Bram Oakes sailed to Rill in May. Later came Cora Swift. In June, Dora Reed sailed to Tarn."
    question = ReadingQuestion(
        "q",
        "When was it that Bram Oakes sailed to the west of Rill in May?",
        ("May",),
        ("p",),
        ("p",),
        (text[:34],),
        "",
        "train",
    )
    source = ReadingSet("one", {"p": Excerpt("p", "", text, source="p")}, (question,))
    rows = [
        row.question
        for seed in range(80)
        for row in make_rows(seed, source=source, changed=1.0, without_gold=0.4, distractors=0)
        if row.question_id == "q-changed"
    ]
    assert any("Cora Swift" in text for text in rows), "a name from another sentence"
    assert any("the east of" in text for text in rows) and any("in July" in text for text in rows)
    assert not any("in June" in text for text in rows), "a passage contains the month"
    answered = replace(question, text="When did Bram Oakes sail?")
    rows = [
        row.question
        for seed in range(40)
        for row in make_rows(
            seed, source=replace(source, questions=(answered,)), changed=1.0, without_gold=0.4, distractors=0
        )
    ]
    assert "When did Cora Swift sail?" in rows and "When did Dora Reed sail?" not in rows, (
        "answered by another sentence"
    )


def test_a_multi_passage_question_is_refused_without_the_passage_with_the_answer() -> None:
    rows = [row for seed in range(40) for row in make_rows(seed, without_gold=0.5, changed=0)]
    refused = [row for row in rows if row.question_id == "q4" and row.kind == "unanswerable"]
    assert refused and not any("saltmere" in row.context_ids for row in refused)
    assert any("tarn" in row.context_ids for row in refused), "half of the evidence is in the context"


def test_a_paired_question_is_answered_and_refused() -> None:
    """The question has a row with passages that contain its answer and a row with passages that lack it; the other rows are unchanged."""
    for share in (0, 0.5):
        plain, paired = (make_rows(without_gold=share, paired=pairs, distractors=0) for pairs in (0, 1))
        assert paired == plain, "without distractors there are no passages for a refusal"
    for seed in range(10):
        plain, paired = make_rows(seed, without_gold=0), make_rows(seed, without_gold=0, paired=1.0)
        assert paired[: len(plain)] == plain and len(paired) > len(plain)
        answered = {row.question_id for row in plain if row.gold_ids}
        more = paired[len(plain) :]
        assert {row.question_id for row in more} <= answered and len({row.question_id for row in more}) == len(more)
        for row in more:
            source = next(each for each in QUESTIONS if each.id == row.question_id)
            assert row.completion == NOT_FOUND and row.question == source.text and row.context_ids
            texts = [words_of(TEXTS[one]) for one in row.context_ids]
            assert source.is_yes_no or not any(occurs_in(one, text) for one in source.answers for text in texts)


def test_the_passage_for_yes_or_no_is_found_by_the_question() -> None:
    texts = ("There was no wind that day, yes.", "The lighthouse of Tarn is open on Sundays only.")
    first, second = (Excerpt(str(n), "", text) for n, text in enumerate(texts))
    for answer in ("no", "Yes"):
        question = Question("q", "Is the lighthouse of Tarn open daily?", (answer,))
        assert passage_with_answer([first, second], question) is second and passage_with_answer([], question) is None


def test_bm25_ranks_by_its_formula() -> None:
    """Compared with a slow reference: idf · f/(f + k1(1 − b + b·|d|/mean)) summed over the question's terms, passage by passage."""
    finder, source = Distractors(isles()), isles()
    texts = {one: words_of(f"{one} {text}").split() for one, text in TEXTS.items()}
    mean = sum(map(len, texts.values())) / len(texts)

    def score(passage: str, terms: list[str]) -> float:
        total = 0.0
        for term in set(terms):
            containing = sum(term in words for words in texts.values())
            count = texts[passage].count(term)
            norm = 1.5 * (0.25 + 0.75 * len(texts[passage]) / mean)
            total += math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5)) * count / (count + norm)
        return total

    for question in source.questions:
        if question.is_answerable and not question.is_yes_no:
            terms = words_of(question.text).split()
            ranked = sorted(TEXTS, key=lambda one: -score(one, terms))
            _, lexical = finder.candidates(question)
            assert lexical == [one for one in ranked if one in lexical]


def test_nearly_equal_passages_are_ranked_alike_in_every_process() -> None:
    """Adding the scores of the same terms in another order changes the last digits, so the order must not depend on Python's hashes."""
    for group in range(8):
        words = [f"word{group}{letter}" for letter in "abcde"]
        counts = {str(n): np.array(p, np.float32) for n, p in enumerate(permutations(range(1, 6))) if n % 7 == 0}
        texts = {
            one: " ".join(word for word, n in zip(words, p, strict=True) for _ in range(int(n)))
            for one, p in counts.items()
        }
        passages = {one: Excerpt(one, "", text, source=one) for one, text in texts.items()}
        question = ReadingQuestion("q", " ".join(words), ("none",), (), (), (), "single", "train")
        weight, norm = idf(np.array([len(texts)]), len(texts))[0], np.array([1.5], np.float32)
        scores = {one: sum((bm25(n, weight, norm)[0] for n in p), np.float32(0)) for one, p in counts.items()}
        _, lexical = Distractors(ReadingSet("set", passages, (question,))).candidates(question)
        assert lexical == sorted(scores, key=lambda one: -scores[one])[: len(lexical)]


def test_the_same_seed_gives_the_same_rows_and_another_seed_different_ones() -> None:
    assert make_rows(3) == make_rows(3) != make_rows(4)


def test_completions_of_every_form_score_as_correct() -> None:
    for form in ("cited", "quoted", "reasoned"):
        for row in make_rows(form=form):
            gold = {row.context_ids.index(one) + 1 for one in row.gold_ids}
            score = score_reading(row.completion, row.answers, gold, len(row.context_ids))
            assert score.exact == 1.0 and score.cites_gold == float(bool(gold))


def test_a_reason_states_the_steps_in_order() -> None:
    """The step that names the builder comes before the one about the builder's birth, whatever the order of the passages."""
    reasons = [
        row.completion for seed in range(6) for row in make_rows(seed, form="reasoned") if row.question_id == "q4"
    ]
    found = [re.findall(r"The ferry was built|Ida Corrow was born|\[\d\]", reason) for reason in reasons]
    assert {tuple(each[::2]) for each in found if each} == {("The ferry was built", "Ida Corrow was born")}
    assert any(each[1] > each[3] for each in found if each), "some passages are in the other order"
    cited = [re.findall(r"\[\d\]", row.completion) for seed in range(6) for row in make_rows(seed)]
    assert all(numbers == sorted(numbers) for numbers in cited), (
        "a bare answer should cite in the order of the passages"
    )


def one_question(text: str, ask: str, answers: tuple[str, ...], evidence: str, *others: str) -> ReadingSet:
    """A set with one question about the passage `text`, and other passages."""
    texts = {str(number): each for number, each in enumerate((text, *others))}
    passages = {key: Excerpt(key, "", each, source=key) for key, each in texts.items()}
    question = ReadingQuestion("q", ask, answers, ("0",), tuple(passages), (evidence,), "", "train")
    return ReadingSet("one", passages, (question,))


@pytest.mark.parametrize("form", ["cited", "quoted", "reasoned"])
def test_bracketed_numbers_in_a_document_do_not_become_citations(form: str) -> None:
    text = "Insulin [39] was found by Ida Corrow [7, 8]. Later it was sold [in Tarn."
    source = one_question(text, "Who found it?", ("Ida Corrow",), text[:44], "The strain is G1P[8], not G2P[4].")
    (row,) = make_rows(source=source, form=form, without_gold=0, share=Share())
    assert reading_problems(row) == [] and row.gold_ids == ("0",)
    assert form == "cited" or "Insulin was found by Ida Corrow. [" in row.completion
    bare = replace(source, questions=(replace(source.questions[0], evidence=()),))
    (row,) = make_rows(source=bare, form=form, without_gold=0, share=Share())
    assert reading_problems(row) == []
    for answer in ("G1P[8]", "[G1P") if form == "cited" else ("G1P[8]",):
        strain = one_question(f"The strain is {answer}, not G2P.", "Which strain?", (answer,), "", "Tarn has a ferry.")
        assert list(reading_rows(strain, ReadingSettings(form=form, without_gold=0))) == [Dropped(FAULTY)]


def test_evidence_is_quoted_although_its_line_breaks_differ() -> None:
    text = "Tarn is a port with a mill. " * 9 + "The ferry was built by\nIda Corrow. It sank."
    source = one_question(text, "Who built the ferry?", ("Ida Corrow",), "The ferry was built by Ida Corrow.")
    (row,) = make_rows(source=source, form="quoted", without_gold=0, distractors=0, share=Share())
    assert row.completion == "###Answer: Ida Corrow ###Reason: The ferry was built by Ida Corrow. [1]"


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("1846年", ("鸣鹤园建于1846年。", "园门于1846年建成。", "设计者是林海。")),
        ("三", ("湖有三个。", "园里有三个湖。", "设计者是林海。")),
        ("ทาร์น", ("เรือจอดที่ทาร์น", "ที่เมืองทาร์นมีเรือ", "เขาชื่อสมชาย")),
    ],
)
def test_answers_are_found_inside_texts_without_spaces(answer: str, texts: tuple[str, ...]) -> None:
    """An answer is learned from the gold passage, and no question is refused over another passage with its answer."""
    source = one_question(texts[0], "?", (answer,), texts[0], *texts[1:])
    rows = [row for seed in range(20) for row in make_rows(seed, source=source, own_words=True, without_gold=0.5)]
    assert {bool(row.gold_ids) for row in rows} == {True, False}
    assert not any("1" in row.context_ids for row in rows), "its text contains the answer, too"
    bare = Question("q", "?", (answer,), ("d",))
    passages = [Excerpt(str(n), "", text, source="d") for n, text in enumerate(reversed(texts))]
    assert passage_with_answer(passages, bare) == passages[1]


def test_a_question_in_two_sets_is_used_once(tmp_path: Path) -> None:
    write_set(tmp_path / "one", isles())
    again = replace(
        isles(), questions=(replace(QUESTIONS[0], id="x", text="when was the FERRY of Tarn built"), QUESTIONS[2])
    )
    write_set(tmp_path / "two", replace(again, questions=(again.questions[0], replace(QUESTIONS[3], text="Other?"))))
    rows = rows_of_sets(tmp_path, ImportSettings(sets={"one": Share(), "two": Share()}))
    ids = [row.id for row in rows if isinstance(row, ReadingRow)]
    assert any(one.startswith("one:q0") for one in ids) and not any(one.startswith("two:x") for one in ids)
    assert any(one.startswith("two:q3") for one in ids)


def test_questions_that_differ_only_in_a_sign_or_a_vowel_sign_are_both_used(tmp_path: Path) -> None:
    texts = (
        "What is C?",
        "What is C++?",
        "Is pH ≥ 7?",
        "Is pH ≤ 7?",
        "राम की?",
        "राम का?",
        "Who fell to -5?",
        "Who fell to 5?",
    )
    questions = [replace(QUESTIONS[n % 2], id=f"x{n}", text=text) for n, text in enumerate(texts)]
    write_set(tmp_path / "one", replace(isles(), questions=tuple(questions[::2])))
    write_set(tmp_path / "two", replace(isles(), questions=tuple(questions[1::2])))
    rows = list(rows_of_sets(tmp_path, ImportSettings(sets={"one": Share(), "two": Share()}, without_gold=0)))
    assert {row.question for row in rows if isinstance(row, ReadingRow)} == set(texts) and Dropped(REPEATED) not in rows


def test_sets_in_folders_of_the_same_name_are_refused(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        write_set(tmp_path / parent / "isles", isles())
    settings = ImportSettings(sets={"one/isles": Share(), "two/isles": Share()})
    with pytest.raises(UserError, match="sets one/isles, two/isles: folders with the same name"):
        list(rows_of_sets(tmp_path, settings))


def test_a_gold_passage_named_twice_is_cited_once(tmp_path: Path) -> None:
    doubled = tuple(replace(each, gold_ids=each.gold_ids * 2) for each in (QUESTIONS[0], *QUESTIONS[6:8]))
    source = read_set(write_set(tmp_path / "isles", replace(isles(), questions=doubled)))
    rows = make_rows(source=source, distractors=0, without_gold=0.5)
    assert {row.completion for row in rows if row.answers} == {"1911 [1]", "yes [1]", "no [1]"}


def test_a_repeated_id_in_a_set_is_reported(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", replace(isles(), questions=(*QUESTIONS, replace(QUESTIONS[1], id="q0"))))
    with pytest.raises(UserError, match=r"isles/questions\.jsonl: id 'q0' appears twice"):
        read_set(folder)


def test_the_command_writes_rows_that_pass_validation(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", isles())
    words = ["data", "import", "reading", str(folder), "--out", str(tmp_path / "rows"), "--set", "distractors=2"]
    assert run(*words).exit_code == 0
    assert "made by `modegraph data import reading`" in (tmp_path / "rows/README.md").read_text()
    found = validate_file(tmp_path / "rows/train.jsonl")
    assert found.form == READING.name and found.rows > 8 and not found.bad
    lines = (tmp_path / "rows/train.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(reading_to_json(reading_from_json(json.loads(line))) == json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"completion": "1912 [1]"}, "completion answers"),
        ({"completion": "1911 [7]"}, "must cite gold passages"),
        ({"gold_ids": ("nowhere",)}, "not a passage of the context"),
        ({"split": "val"}, "split is 'val'"),
    ],
)
def test_a_fault_in_a_row_is_reported(change: dict[str, object], problem: str) -> None:
    row = next(row for row in make_rows() if row.question_id == "q0" and row.gold_ids)
    assert problem in "; ".join(reading_problems(replace(row, **change)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "a", "question": " "}, "'question' is ' '"),
        ({"id": "a", "question": "Who?", "gold_ids": ["moon"]}, "no passage 'moon'"),
        ({"id": "a", "question": "Who?", "answers": "Ida"}, "'answers' is 'Ida'"),
        ({"id": "a", "question": "Who?", "split": "late"}, "split 'late'"),
        ({"id": "a", "question": "Who?", "evidence": [{"text": "It was Ida."}]}, "evidence [{'text'"),
        ({"id": "a", "question": "Who?", "supporting_sentences": ["moon"]}, "supporting sentences ['moon']"),
        ({"id": "a", "question": "Who?", "evidence": [5]}, "evidence [5]"),
        ({"id": "a", "question": "Who?", "type": 1}, "kind or type 1. Expected a string"),
        ({"id": "a", "question": "Who?", "answer": 5}, "'answer' is 5. Expected a string"),
    ],
)
def test_a_fault_in_a_set_is_reported_with_its_line(row: dict[str, object], message: str, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", isles())
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"questions\.jsonl line 1") as raised:
        read_set(folder)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "tarn", "text": "Another text."}, "id 'tarn' appears twice"),
        ({"id": "a", "text": "Tarn.", "title": 1984}, "one of 'id', 'text' and 'title' is not a string"),
        ({"id": "a"}, "'id' or 'text' is missing"),
    ],
)
def test_a_fault_in_a_passage_is_reported_with_its_line(row: dict[str, object], message: str, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", isles())
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=rf"corpus\.jsonl line {len(TEXTS) + 1}: ") as raised:
        read_set(folder)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answer": "Ida Corrow"}, ("Ida Corrow",)),
        ({"answer": "Ida Corrow", "answers": []}, ("Ida Corrow",)),
        ({"answer": "Ida", "answers": ["Ida Corrow", "Ida"]}, ("Ida Corrow", "Ida")),
        ({"answer": None, "answers": ["Ida Corrow"]}, ("Ida Corrow",)),
        ({"answer": None}, ()),
    ],
)
def test_a_question_may_have_a_single_answer(
    fields: dict[str, object], answers: tuple[str, ...], tmp_path: Path
) -> None:
    folder = write_set(tmp_path / "isles", isles())
    row = {"id": "a", "question": "Who?", "gold_ids": ["tarn"], **fields}
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert [each.answers for each in read_set(folder).questions] == [answers]


def test_only_the_words_of_a_question_determine_its_split(tmp_path: Path) -> None:
    """The split of a question without one must not change between versions: test questions would be trained on."""
    folder = write_set(tmp_path / "isles", isles())
    texts = [f"How many % of the {year} budget was spent?" for year in range(1900, 1920)]
    texts += [f"{year} में पुल किसने बनाया?" for year in range(1900, 1920)]
    rows = [{"id": f"{n}", "question": text} for n, text in enumerate(texts)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = [" ".join(re.findall(r"\w+", text.casefold())) for text in texts]
    assert [each.split for each in read_set(folder).questions] == [split_by_hash(each) for each in words]


def test_a_set_in_the_working_directory_has_its_folders_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_set(tmp_path / "isles", isles()))
    assert read_set(Path()).name == "isles"


@pytest.mark.parametrize("key", ["kind", "type"])
def test_a_question_marked_unanswerable_has_no_answers(key: str, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "isles", isles())
    row = {"id": "a", "question": "Who?", "answers": ["Ida"], key: "unanswerable"}
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (question,) = read_set(folder).questions
    assert question.answers == () and question.kind == "unanswerable"

"""Questions about one fact, and questions without an answer, from a handbook and from pages that are each about one thing."""

import re
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from data_synth.questions.by_rules import near_miss, template_questions
from data_synth.questions.facts import Sentences
from data_synth.questions.question_form import (
    QuestionRow,
    named_in,
    question_from_json,
    question_problems,
    question_to_json,
)
from graph.documents.read import read_documents
from graph.index.index import Index
from graph.types import Document
from tests.data_synth.questions.films import FILMS
from tests.graph.hashed import build
from tests.places import EXAMPLES


def index_of(folder: Path, where: Path) -> Index:
    return build(folder, list(read_documents(where, lambda line: None)))


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return index_of(tmp_path_factory.mktemp("handbook") / "index", EXAMPLES / "handbook")


def questions_of(index: Index, seed: int = 0, share: float = 0.0, count: int = 500) -> list[QuestionRow]:
    return list(template_questions(index, count, (1,), seed, share))


def by_question(folder: Path, *documents: Document) -> dict[str, QuestionRow]:
    return {row.text: row for row in questions_of(build(folder, documents))}


def test_a_handbook_gives_at_least_two_questions_a_page(handbook: Index) -> None:
    rows = questions_of(handbook)
    for source in handbook.sources():
        assert sum(row.sources == (source,) for row in rows) >= 2, source
    openings = {row.text.split()[0] for row in rows}
    assert openings >= {"Who", "Where", "When", "How", "What", "At", "Within"}


def test_an_answer_is_in_its_sentence_and_no_question_contains_a_pronoun(handbook: Index) -> None:
    for row in questions_of(handbook):
        (step,) = row.steps
        (passage,) = [each for each in handbook.passages_of(step.source) if each.id == step.passage_id]
        assert row.answers[0] in step.quote and step.quote in passage.text
        assert row.hops == 1 and row.kind in ("single", "table") and question_problems(row) == []
        assert not any(named_in(pronoun, row.text) for pronoun in ("he", "she", "it", "they", "this", "we", "you"))
        assert not named_in(row.answers[0], row.text)


def test_the_same_seed_makes_the_same_questions(handbook: Index) -> None:
    assert questions_of(handbook) == questions_of(handbook) and questions_of(handbook, 1) != questions_of(handbook)


def test_a_pronoun_is_replaced_by_the_subject_of_the_page(tmp_path: Path) -> None:
    tram = Document("tram", "The Corrow Tram", "The Corrow Tram is a line. It opened on 17 June 1893.")
    pay = Document("pay", "Pay and pension", "Tom Gale runs payroll. He joined Hull Yard in 1988.")
    rows = by_question(tmp_path / "i", tram, pay)
    assert rows["When did the Corrow Tram open?"].answers == ("17 June 1893",)
    assert not any("pension" in text for text in rows)


def test_a_fact_without_a_name_is_identified_by_the_title_of_its_page(tmp_path: Path) -> None:
    tram = Document("tram", "The Corrow Tram", "The Corrow Tram is a line. The gauge is 760 millimetres.")
    rows = by_question(tmp_path / "i", tram)
    assert rows["What is the gauge, according to “The Corrow Tram”?"].answers == ("760 millimetres",)


def test_the_same_words_on_two_pages_are_distinguished_by_title(tmp_path: Path) -> None:
    pages = [
        Document(year, f"Timetable {year}", f"Trams leave at {hour}:00.") for year, hour in (("2022", 8), ("2023", 9))
    ]
    rows = by_question(tmp_path / "i", *pages)
    assert {text: row.answers for text, row in rows.items()} == {
        "At what time do trams leave, according to “Timetable 2022”?": ("8:00",),
        "At what time do trams leave, according to “Timetable 2023”?": ("9:00",),
    }


@pytest.mark.parametrize("titles", [("Joy (1983 film)", "Joy (2010 film)"), ("Joy [1983]", "Joy [2010]")])
def test_titles_that_differ_only_in_brackets_name_no_subject(titles: tuple[str, str], tmp_path: Path) -> None:
    pages = [
        Document(title, title, f"Joy is a {title[5:9]} film directed by {name}. Joy was {event}.")
        for title, name, event in zip(
            titles, ("Ada Low", "Ben Orme"), ("shown in May", "released in June"), strict=True
        )
    ]
    assert by_question(tmp_path / "i", *pages) == {}
    alone = by_question(tmp_path / "j", pages[0])
    assert alone["In what year did Joy come out?"].answers == (titles[0][5:9],) and len(alone) > 1


def test_years_in_brackets_do_not_distinguish_pages(tmp_path: Path) -> None:
    pages = [
        Document(year, f"Fares [{year}]", f"The fare is {fare} crowns.") for year, fare in (("2023", 3), ("2024", 4))
    ]
    assert by_question(tmp_path / "i", *pages) == {}


def test_values_of_other_things_are_not_those_of_the_subject(tmp_path: Path) -> None:
    pages = [
        Document("lake", "Lake Vane", "Lake Vane is a lake. The nearby town of Tarn has a population of 3,100."),
        Document("reed", "Ben Reed", "Ben Reed was a baker. Karl Ott (1820–1890) taught him."),
    ]
    assert not {"What is the population of Lake Vane?", "In what year was Ben Reed born?"} & set(
        by_question(tmp_path / "i", *pages)
    )


def test_a_heading_that_runs_into_its_sentence_makes_no_question(tmp_path: Path) -> None:
    headed = "Care after excision Scans are recommended for 5 years."
    plain = "All scans are kept. Patients of Tarn may ask for scans."
    named = "The ferry Lantern carries 80 people. At noon Lantern sails."
    rows = by_question(tmp_path / "i", Document("care", "Care", f"{headed} {plain} {named}"))
    assert "How many people does the ferry Lantern carry?" in rows
    assert not any("excision" in text for text in rows)


def test_a_fact_that_two_documents_state_makes_no_question(tmp_path: Path) -> None:
    text = "When did Hull Yard move to Candle Lane?"
    yard = Document("yard", "Yards", "Hull Yard moved to Candle Lane in March 1971.")
    assert text in by_question(tmp_path / "i", yard)
    lane = Document("lane", "Lanes", "In March 1971 Candle Lane saw the moving of Hull Yard.")
    assert text not in by_question(tmp_path / "j", yard, lane)


def test_an_unanswerable_question_names_something_that_the_documents_lack(handbook: Index) -> None:
    rows = questions_of(handbook, share=0.3, count=40)
    without = [row for row in rows if not row.answers]
    assert len(without) == 12 and len(rows) == 40
    sentences = Sentences(handbook)
    for answered, row in pairwise(rows):
        if row.answers:
            continue
        assert (row.kind, row.hops, row.passage_ids, row.bridges) == ("unanswerable", 0, (), ())
        assert question_problems(row) == [] and question_from_json(question_to_json(row)) == row
        assert row.split == answered.split
        assert [step.quote for step in row.near] == [step.quote for step in answered.steps]
        known, words = (re.findall(r"\w+", each.text.casefold()) for each in (answered, row))
        named = " ".join(word for word in words if word not in known)
        assert named and named not in sentences.text


def test_no_word_is_looked_up_once_a_name_has_been_changed(tmp_path: Path) -> None:
    class Watched(Sentences):
        """Counts the words that are looked up."""

        count = 0

        def has_word(self, word: str) -> bool:
            self.count += 1
            return super().has_word(word)

    index = build(tmp_path / "i", [Document("gate", "Gate", "The library of Hull Yard opened in 1911.")])
    (row,) = [row for row in questions_of(index) if row.answers == ("1911",)]
    sentences = Watched(index)
    near = near_miss(row, sentences, Random(0))
    assert near is not None and "library" in near.text and "Hull Yard" not in near.text
    assert sentences.count == 0, "the name was changed, so no other word for the library is needed"


@pytest.mark.parametrize(
    "leave",
    [
        Document("leave", "Leave", "# Parental leave\n\nAll employees receive 27 days a year."),
        Document("leave", "Parental leave", "All employees receive 27 days a year."),
        Document("leave", "Leave", "All employees may ask for parental\nleave."),
    ],
    ids=["heading", "title", "line break"],
)
def test_a_phrase_of_a_heading_or_title_makes_no_unanswerable_question(leave: Document, tmp_path: Path) -> None:
    other = Document("study", "Study", "Full-time employees receive 4 days of study leave.")
    sentences = Sentences(build(tmp_path / "i", [other, leave]))
    assert "study leave" in sentences.text and "parental leave" in sentences.text
    row = by_question(tmp_path / "j", other)["How many days of study leave do full-time employees receive?"]
    changed = {one.text for seed in range(60) if (one := near_miss(row, sentences, Random(seed))) is not None}
    assert len(changed) > 3 and not any("parental" in text for text in changed)


def test_without_a_share_every_question_has_an_answer(handbook: Index) -> None:
    assert all(row.answers for row in questions_of(handbook))


def test_values_of_a_page_make_questions_too(tmp_path: Path) -> None:
    rows = by_question(tmp_path / "i", *FILMS)
    assert rows["When was Edward Lorne born?"].answers == ("7 November 1889",)

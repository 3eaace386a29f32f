import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from data_synth.questions.by_rules import TEMPLATES, template_questions, to_row
from data_synth.questions.check import (
    MAX_USES_OF_DOCUMENT,
    DuplicateFilter,
    is_stated_once,
    needs_all,
    path_holds,
)
from data_synth.questions.index_statements import Mentions, read_index
from data_synth.questions.question_form import (
    QUESTIONS,
    QuestionRow,
    Step,
    named_in,
    question_from_json,
    question_problems,
    question_to_json,
)
from data_synth.questions.templates import Candidate, comparison_questions
from graph.documents.questions import read_questions
from graph.index.index import Index
from graph.types import Document
from tests.data_synth.questions.films import FILMS, TOGETHER
from tests.graph.hashed import build
from tests.growth import assert_linear

HOPS = (2, 3, 4)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("films") / "index", FILMS)


def questions_of(index: Index, count: int = 500, seed: int = 0) -> list[QuestionRow]:
    return list(template_questions(index, count, HOPS, seed))


def with_one_hop(index: Index, count: int = 500) -> list[QuestionRow]:
    return list(template_questions(index, count, (1, *HOPS), 0))


def possible(index: Index, seed: int = 0) -> dict[str, QuestionRow]:
    """Every valid question, however often its documents are used."""
    splits = dict.fromkeys(index.sources(), "train")
    readings = read_index(index, splits)
    found = (
        to_row(each, splits)
        for make in TEMPLATES.values()
        for hops in HOPS
        for each in make(readings, hops, Random(seed))
    )
    return {row.text: row for row in found if row is not None and needs_all(row, readings.mentions)}


def with_more(folder: Path, *more: Document) -> dict[str, QuestionRow]:
    return possible(build(folder, [*FILMS, *more]))


def test_questions_of_every_kind_are_made_from_the_sentences(films: Index) -> None:
    rows = possible(films)
    born = rows["When was the person who directed The Saddle Hawk born?"]
    assert (born.kind, born.hops, born.answers) == ("bridge", 2, ("7 November 1889",))
    assert born.sources == ("hawk", "lorne") and born.bridges == ("Edward Lorne",)
    assert born.steps[1].quote == FILMS[1].text and born.chains[0][0].found == born.chains[0][1].given == "Edward Lorne"
    assert rows["Which 1940 drama film was written by the person who starred in Night Ferry?"].answers == ("Low Tide",)
    (shared,) = (
        row for text, row in rows.items() if text.startswith("Who or what is mentioned both in the document on")
    )
    assert shared.sources in (("night", "tide"), ("tide", "night")) and (
        shared.kind,
        shared.answers,
        len(shared.chains),
    ) == ("intersection", ("Otto Brandt",), 2)
    compared = [row for row in rows.values() if row.kind == "comparison"]
    assert {row.hops for row in compared} == {2, 3, 4}


def test_the_answer_to_a_comparison_follows_from_the_values(films: Index) -> None:
    by_thing = {"The Saddle Hawk": 1925, "Night Ferry": 1931, "Low Tide": 1940, "Marlow Yard": 1880, "Tarn Mill": 1795}
    by_thing |= {"born Edward Lorne": 1889, "born Mara Quill": 1901, "died Edward Lorne": 1953, "died Mara Quill": 1980}
    cases = set()
    for seed in range(6):
        for row in possible(films, seed).values():
            if row.kind == "comparison":
                event = next((f"{word} " for word in ("born", "died") if f" {word} " in row.text), "")
                ends = [(chain[-1].given, by_thing[event + chain[-1].given]) for chain in row.chains]
                choose = max if " later, " in row.text else min
                assert row.answers == (choose(ends, key=lambda end: end[1])[0],)
                cases.add((event, choose))
    assert len(cases) >= 5, "earlier and later should both occur, for things, births and deaths"


@pytest.mark.long
def test_every_passage_is_needed_and_together_they_suffice(examples: Index) -> None:
    rows, mentions = list(possible(examples).values()), Mentions(examples)
    assert len(rows) >= 15
    for row in rows:
        assert path_holds(row, mentions)
        for passage_id in row.passage_ids:
            assert not path_holds(row, mentions, without=passage_id)
        assert len(row.passage_ids) == len(row.sources) == row.hops in HOPS
        assert not any(named_in(bridge, row.text) for bridge in row.bridges)
        assert row.kind == "comparison" or not named_in(row.answers[0], row.text)
        assert question_problems(row) == []


def test_each_step_is_found_in_its_passage(examples: Index) -> None:
    for row in possible(examples).values():
        for step in row.steps:
            (passage,) = [each for each in examples.passages_of(step.source) if each.id == step.passage_id]
            assert step.quote in passage.text
            assert named_in(step.found, step.quote) or passage.title.startswith(step.found)
        ends = {chain[-1].found for chain in row.chains} | {chain[-1].given for chain in row.chains}
        assert row.answers[0] in ends


def test_a_passage_that_is_not_needed_is_detected(films: Index) -> None:
    mentions = Mentions(films)
    row = possible(films)["When was the person who directed The Saddle Hawk born?"]
    idle = Step("Marlow Yard", "1880", "yard", films.passages_of("yard")[0].id, "It stands in Port Ellery.")
    padded = replace(row, chains=(*row.chains, (idle,)), hops=3)
    assert not path_holds(padded, mentions, without=idle.passage_id), "the added chain needs its passage"
    detour = replace(row, chains=((row.chains[0][0], idle, row.chains[0][1]),))
    assert path_holds(detour, mentions) and path_holds(detour, mentions, without=idle.passage_id)
    assert not needs_all(detour, mentions) and needs_all(row, mentions)


def test_a_disconnected_chain_does_not_hold(films: Index) -> None:
    row = next(row for row in questions_of(films, seed=TOGETHER) if row.kind == "bridge")
    last_step = replace(row, chains=(row.chains[0][1:],))
    assert path_holds(last_step, Mentions(films))
    first, last = row.chains[0][0], row.chains[0][-1]
    apart = replace(row, chains=((replace(first, source="mill", passage_id=films.passages_of("mill")[0].id), last),))
    assert not path_holds(apart, Mentions(films))


def test_a_hop_that_another_passage_states_too_makes_no_question(tmp_path: Path) -> None:
    text = "When was the person who directed The Saddle Hawk born?"
    assert text in with_more(tmp_path / "plain")
    other = Document("list", "Lorne's films", "The Saddle Hawk was the first film of Edward Lorne.")
    assert text not in with_more(tmp_path / "other", other)
    also = Document("births", "Births of 1889", "On 7 November 1889 the baker's son Edward Lorne came to the world.")
    assert text not in with_more(tmp_path / "also", also)


def test_an_ambiguous_name_or_answer_makes_no_question(tmp_path: Path) -> None:
    text = "When was the person who directed The Saddle Hawk born?"
    other = Document("other", "Edward Lorne (baker)", "Edward Lorne (born 1 May 1950) is a baker.")
    assert text not in with_more(tmp_path / "two", other)
    film = "Which 1940 drama film was written by the person who starred in Night Ferry?"
    assert film in with_more(tmp_path / "alone")
    third = Document("third", "High Water", "High Water is a 1950 drama film written by Otto Brandt.")
    rows = with_more(tmp_path / "three", third)
    assert not any("written by the person who starred in Night Ferry" in text for text in rows)


def test_a_title_shared_by_several_things_identifies_no_document(tmp_path: Path) -> None:
    twin = Document("twin", "Low Tide", "Low Tide is a poem.")
    bracketed = Document("bracketed", "Port Ellery (ship)", "It sank.")
    mentions = Mentions(build(tmp_path / "i", [*FILMS, twin, bracketed]))
    assert mentions.document_of("low tide") is None and mentions.document_of("port ellery") is None
    assert mentions.document_of("mara quill") is not None


def test_a_film_with_two_directors_gives_no_question_about_its_director(tmp_path: Path) -> None:
    rows = with_more(tmp_path / "i", Document("duo", "Duo", "Duo is a 1950 film directed by Mara Quill and Ann Low."))
    assert not any("Duo" in row.text and "directed Duo" in row.text for row in rows.values())


def test_a_question_that_gives_away_a_bridge_or_the_answer_makes_no_row() -> None:
    step = Step("A", "Ada", "a", "p", "A is by Ada.")
    last = Step("Ada", "1880", "b", "q", "Ada was born in 1880.")
    fine = Candidate("bridge", "when was who made A born?", "1880", ((step, last),), ("Ada",))
    splits = {"a": "dev", "b": "dev"}
    row = to_row(fine, splits)
    assert row is not None and row.split == "dev"
    assert to_row(replace(fine, text="When was Ada, who made A, born?"), splits) is None
    assert to_row(replace(fine, text="Who made A in 1880?"), splits) is None
    assert to_row(replace(fine, chains=((step, replace(last, source="a")),)), splits) is None
    assert to_row(fine, {"a": "dev", "b": "train"}) is None, (
        "a question about documents of two splits should make no row"
    )


def test_a_step_is_stated_once_only_if_no_other_passage_mentions_both_ends(films: Index) -> None:
    mentions = Mentions(films)
    passage = films.passages_of("hawk")[0]
    step = Step("The Saddle Hawk", "Edward Lorne", "hawk", passage.id, passage.text)
    assert is_stated_once(step, mentions)
    assert not is_stated_once(replace(step, passage_id=films.passages_of("yard")[0].id), mentions)


def test_documents_are_not_used_too_often_and_questions_are_not_repeated(examples: Index) -> None:
    rows = questions_of(examples)
    uses = Counter(source for row in rows for source in row.sources)
    assert max(uses.values()) <= MAX_USES_OF_DOCUMENT
    assert len({row.id for row in rows}) == len({row.text for row in rows}) == len(rows)
    duplicates = DuplicateFilter()
    duplicates.add(rows[0])
    assert duplicates.is_duplicate(replace(rows[0], text=rows[0].text.replace("?", " ?")))
    assert not duplicates.is_duplicate(replace(rows[0], text="Something else entirely?"))


def test_the_same_seed_makes_the_same_questions(films: Index, examples: Index) -> None:
    assert questions_of(examples) == questions_of(examples)
    assert [row.text for row in questions_of(films, seed=TOGETHER)] != [
        row.text for row in questions_of(films, seed=23)
    ]
    assert questions_of(examples, count=4) == questions_of(examples)[:4]
    assert {row.hops for row in template_questions(films, 500, (3,), TOGETHER)} == {3}


def test_evaluation_can_read_the_rows(films: Index, tmp_path: Path) -> None:
    rows = questions_of(films, seed=TOGETHER)
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(question_to_json(row)) + "\n" for row in rows))
    for row, question in zip(rows, read_questions(file), strict=True):
        assert (question.text, question.answers, question.gold_sources) == (row.text, row.answers, row.sources)
        assert (question.kind, question.hops, question.split) == (row.kind, row.hops, row.split)
        assert [quoted.text for quoted in question.evidence] == [step.quote for step in row.steps]
    lines = file.read_text().splitlines()
    assert [question_from_json(json.loads(line)) for line in lines] == rows
    assert QUESTIONS.schema().names == list(question_to_json(rows[0]))


def test_an_unknown_split_is_a_problem(films: Index) -> None:
    row = replace(questions_of(films, seed=TOGETHER)[0], split="late")
    assert question_problems(row) == ["split is 'late', expected one of train, dev, test"]


def test_the_split_is_by_document_not_by_question(examples: Index) -> None:
    rows = with_one_hop(examples)
    splits: dict[str, set[str]] = {}
    for row in rows:
        for source in row.sources:
            splits.setdefault(source, set()).add(row.split)
    assert all(len(of_document) == 1 for of_document in splits.values())
    assert {row.split for row in rows} == {"train", "dev", "test"}
    assert any(row.hops > 1 and row.split == "train" for row in rows)
    by_fact: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for step in row.steps:
            by_fact.setdefault((step.given.casefold(), step.found.casefold()), set()).add(row.split)
    assert all(len(of_fact) == 1 for of_fact in by_fact.values())


def test_only_things_of_one_kind_are_compared(tmp_path: Path) -> None:
    pages = [
        Document("pay", "Pay and pension", "Wages are paid monthly. Questions go to the Personnel Office."),
        Document("canteen", "Canteen and parking", "The canteen seats 64. The Personnel Office stands beside it."),
        Document("hull", "Hull Yard", "Hull Yard was founded in 1700 by Tom Gale."),
        Document("song", "Old Song", "Old Song was founded in 1900 by Ben Gale."),
    ]
    rows = possible(build(tmp_path / "i", [*pages]))
    assert not any("both in the document" in text or " or " in text for text in rows)
    also = Document("quay", "Quay Yard", "Quay Yard was founded in 1800 by Tim Gale.")
    assert any(
        row.kind == "comparison" and {"Hull Yard", "Quay Yard"} == {step.given for step in row.steps}
        for row in possible(build(tmp_path / "j", [*pages, also])).values()
    )


@pytest.mark.long
def test_the_time_to_find_comparable_documents_grows_linearly(tmp_path: Path) -> None:
    def prepare(size: int) -> Callable[[], object]:
        pages = [Document(f"{n}", f"The {n} Pool", f"The {n} Pool was built in {1000 + n}.") for n in range(size)]
        index = build(tmp_path / f"{size}", pages)
        readings = read_index(index, dict.fromkeys(index.sources(), "train"))
        assert sum(map(len, readings.values.values())) == size
        return lambda: list(comparison_questions(readings, 2, Random(0)))

    assert_linear(prepare, 60)


def test_no_kind_of_comparison_dominates(tmp_path: Path) -> None:
    people = [
        Document(f"p{n}", f"Ada Lorne{chr(97 + n)}", f"Ada Lorne{chr(97 + n)} (born {1800 + 3 * n}) was a painter.")
        for n in range(20)
    ]
    rows = questions_of(build(tmp_path / "i", people))
    assert 0 < sum("born" in row.text for row in rows) <= 6
    assert sum(row.kind == "comparison" for row in with_one_hop(build(tmp_path / "j", people))) * 2 <= 20 + 6

import pytest

from data_synth.questions.phrases import (
    Kind,
    day_number,
    is_about_person,
    kind_by_name,
    kind_of,
    opens_with_subject,
    predicate_of,
    relate,
    values_of,
)

FILM, PERSON, PLACE = Kind("film"), Kind("person", True), Kind("river")


@pytest.mark.parametrize(
    ("predicate", "name", "subject", "other", "forward", "question", "backward_question"),
    [
        (
            "is a 1931 crime film written and directed by Mara Quill.",
            "mara quill",
            FILM,
            PERSON,
            "the person who wrote and directed {}",
            "Who wrote and directed {}?",
            "Which 1931 crime film was written and directed by {}?",
        ),
        (
            "is a tributary of the River Tamar and rises at Tarn.",
            "river tamar",
            PLACE,
            PLACE,
            "the river that {} is a tributary of",
            "{} is a tributary of which river?",
            "Which river is a tributary of {}?",
        ),
        (
            "was married to the actress Rosa Monte.",
            "rosa monte",
            PERSON,
            Kind(),
            "the person that {} was married to",
            "{} was married to whom?",
            "Who was married to {}?",
        ),
        (
            "was built by Ada Low.",
            "ada low",
            Kind(),
            Kind(),
            "whoever built {}",
            "Who built {}?",
            "What was built by {}?",
        ),
    ],
)
def test_a_relation_is_worded_in_both_directions(
    predicate: str, name: str, subject: Kind, other: Kind, forward: str, question: str, backward_question: str
) -> None:
    relation = relate(predicate, name, subject, other)
    assert relation is not None
    assert (relation.forward, relation.forward_question, relation.backward_question) == (
        forward,
        question,
        backward_question,
    )


@pytest.mark.parametrize(
    "predicate",
    [
        "is a film directed by Ada Low and Mara Quill.",
        "is a film directed by Ada Low, Mara Quill and Otto Brandt.",
        "is a film directed by Otto Brandt and Ada Low.",
        "was not built by, but for, Ada Low.",
        "was praised, and many say it is owed to Ada Low.",
        "stands beside Ada Low's yard.",
        "is a museum of Ada Low Smith.",
        "is a member of the Movement for Ada Low.",
        "won a prize, such as Ada Low.",
        "was nominated for the short-lived Ada Low.",
        "opened in May and it won Ada Low.",
        "opened in May. It was built by Ada Low.",
        "is a template with {} written by Ada Low.",
    ],
)
def test_an_ambiguous_or_awkward_predicate_gives_no_relation(predicate: str) -> None:
    assert relate(predicate, "ada low", FILM, PERSON) is None


def test_the_kind_of_a_thing_follows_from_predicate_or_name() -> None:
    assert kind_of("is an American film and television director.", False) == PERSON
    assert kind_of("is a village and municipality in Tarn.", True) == Kind("village")
    assert kind_of("rises at Tarn.", False) == Kind()
    assert kind_of("sailed home.", True) == PERSON
    assert kind_by_name("University of Wales") == Kind("university")
    assert kind_by_name("") == kind_by_name(" of Tarn") == Kind()


@pytest.mark.parametrize(
    ("title", "sentences", "expected"),
    [
        ("Ada Low", ["Ada Low sailed home.", "She was late."], True),
        ("Ada Low", ["Ada Mary Low (born 1901) sails."], True),
        ("Ada Low", ["She is quoted here.", "Ada Low was born in Tarn."], True),
        ("Lake Vane", ["Lake Vane is deep.", "Many swim in it.", "In 1911 he who swam it won."], False),
        ("Lake Vane", ["Lake Vane is deep.", "Ada Low (born 1901) swam it.", "She was born in Tarn."], False),
        ("Ada Low", ["Ada Low's mill is old.", "He who owns it bakes."], False),
        ("The Lantern", ["The Lantern sails at noon.", "She is red."], False),
    ],
)
def test_a_subject_is_a_person_only_if_sentences_about_it_say_so(
    title: str, sentences: list[str], expected: bool
) -> None:
    assert is_about_person(sentences, title) == expected


def test_only_the_first_sentence_of_a_document_may_open_with_a_longer_name() -> None:
    assert opens_with_subject("Ada Mary Low bakes.", "Ada Low", is_first=True)
    assert not opens_with_subject("Ada Mary Low bakes.", "Ada Low", is_first=False)
    assert not opens_with_subject("Ada Low and Ben Low bake.", "Ada Low", is_first=True)
    assert not opens_with_subject("Ada Low bakes.", "", is_first=True)


@pytest.mark.parametrize(
    ("text", "title", "kind", "predicate"),
    [
        ("Ada Low (1880 – 1931) was a baker.", "Ada Low", PERSON, "was a baker."),
        ("Low was a baker.", "Ada Low", PERSON, "was a baker."),
        ("Low was a baker.", "Ada Low", FILM, None),
        ("Duo: The film was made in Tarn.", "Duo (1950 film)", FILM, "was made in Tarn."),
        ('"Duo" is a song.', "Duo (song)", Kind(), "is a song."),
        ("Duo's author was late.", "Duo", Kind(), None),
        ("Duo and Trio were songs.", "Duo", Kind(), None),
    ],
)
def test_a_predicate_is_extracted_only_if_its_subject_is_that_of_the_document(
    text: str, title: str, kind: Kind, predicate: str | None
) -> None:
    assert predicate_of(text, title, kind) == predicate


@pytest.mark.parametrize(
    ("text", "predicate", "kind", "expected"),
    [
        ("Ada( 4 May 1850, Tarn – 1931) was a baker.", None, PERSON, [("born", "4 May 1850"), ("died", "1931")]),
        ("Ada (born June 3, 1901) bakes.", None, PERSON, [("born", "June 3, 1901")]),
        ("Ada bakes for the show (1989 – 2000).", "bakes for the show.", PERSON, []),
        ("Ada is known for her role (1989 – 2000).", "is known for her role.", PERSON, []),
        ("Ada died in Tarn on 4 May 1931.", "died in Tarn on 4 May 1931.", PERSON, [("died", "4 May 1931")]),
        ("Ada died.", "was born in the United States in 1850.", PERSON, [("born", "1850")]),
        ("Ada moved.", "was born in Tarn and moved to Quill in 1931.", PERSON, []),
        ("Ada moved.", "was born in Tarn before they moved in 1931.", PERSON, []),
        ("Duo is a 1950 film.", "is a 1950 film.", FILM, [("came out", "1950")]),
        ("The yard was founded by Ada in 1880.", "was founded by Ada in 1880.", Kind(), [("was founded", "1880")]),
        ("The yard burned.", "was destroyed by fire and rebuilt in 1911.", Kind(), []),
        ("The yard burned.", "was built by a firm founded in 1880.", Kind(), []),
        ("The yard burned.", "was destroyed by fire in 1911 and rebuilt.", Kind(), [("was destroyed", "1911")]),
    ],
)
def test_the_dates_of_a_subject_are_extracted(
    text: str, predicate: str | None, kind: Kind, expected: list[tuple[str, str]]
) -> None:
    assert [(value.attribute, value.text) for value in values_of(text, predicate, kind, True)] == expected


def test_dates_in_brackets_after_another_name_are_not_those_of_the_subject() -> None:
    assert list(values_of("Karl Ott (1820–1890) taught him.", None, PERSON, False)) == []


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("had a population of 1,404, in 293 families.", [("population ", "1,404")]),
        ("has a population of 3.1 million people.", [("population million people", "3.1 million people")]),
        ("has a population of 1.234.567.", []),
        ("has a population of 752 618.", []),
        ("has a population of 1,200–1,300.", []),
        ("has a population of 1.2 million to 1.3 million.", []),
        ("has a height of 3-4 m.", []),
        ("has a height of 3 to 4 m.", []),
        ("has a height of 3 m – 4 m.", []),
        ("has a height of 3 m, or 4 in winter.", [("height m", "3 m")]),
        ("is 1.234.567 m long.", []),
        ("is 77 km long.", [("long km", "77 km")]),
        ("has a length of 3 km and a height of 4 m.", [("length km", "3 km")]),
        ("covers an area of 30,355 km2.", [("area km2", "30,355 km2")]),
        ("lies at an altitude of 2,267m in the hills.", [("altitude m", "2,267m")]),
        ("is a village in Tarn with a population of 1,404 according to the census.", [("population ", "1,404")]),
        ("is a lake near a town with a population of 3,100.", []),
        ("is near Tarn, which has a population of 3,100.", []),
        ("has a tower with a height of 40 m.", []),
        ("ends at a pier that is 30 m long.", []),
        (None, []),
    ],
)
def test_the_quantities_of_a_subject_are_extracted(predicate: str | None, expected: list[tuple[str, str]]) -> None:
    found = values_of("The nearby town of Tarn has a population of 3,100.", predicate, Kind(), False)
    assert [(value.attribute, value.text) for value in found] == expected


def test_a_long_word_in_capitals_is_read_at_once() -> None:
    """Each capital could begin a name: without possessive matching, the time grows with the ninth power of the length."""
    assert list(values_of("A" * 200 + " is here.", None, PERSON, True)) == []


def test_dates_sort_by_time() -> None:
    days = ["1930", "May 1930", "4 May 1930", "December 5, 1930", "1 January 1931"]
    assert sorted(days, key=day_number) == days

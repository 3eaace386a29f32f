import pytest

from data_synth.questions.phrases import Kind, day_number, kind_by_name, kind_of, predicate_of, relate, values_of

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
        "is a template with {} written by Ada Low.",
    ],
)
def test_an_ambiguous_or_awkward_predicate_gives_no_relation(predicate: str) -> None:
    assert relate(predicate, "ada low", FILM, PERSON) is None


def test_the_kind_of_a_thing_follows_from_predicate_pronoun_or_name() -> None:
    assert kind_of("is an American film and television director.", "") == PERSON
    assert kind_of("is a village and municipality in Tarn.", "He lives there.") == Kind("village")
    assert kind_of("rises at Tarn.", "It rises.") == Kind()
    assert kind_of("sailed home.", "She sailed home.") == PERSON
    assert kind_by_name("University of Wales") == Kind("university")


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
def test_a_predicate_is_extracted_only_if_its_subject_is_the_documents(
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
        ("Duo is a 1950 film.", "is a 1950 film.", FILM, [("came out", "1950")]),
        ("The yard was founded by Ada in 1880.", "was founded by Ada in 1880.", Kind(), [("was founded", "1880")]),
        ("Tarn: its population was 1,404, in 293 families.", None, Kind(), [("population ", "1,404")]),
        ("Brandt has a population of 1.234.567.", None, Kind(), []),
        ("The pier is 1.234.567 m long.", None, Kind(), []),
        ("The Tavy is 77 km long.", "is 77 km long.", PLACE, [("long km", "77 km")]),
        ("Two: length of 3 km, height of 4 m.", None, Kind(), []),
    ],
)
def test_dates_and_quantities_are_extracted(
    text: str, predicate: str | None, kind: Kind, expected: list[tuple[str, str]]
) -> None:
    assert [(value.attribute, value.text) for value in values_of(text, predicate, kind)] == expected


def test_dates_sort_by_time() -> None:
    days = ["1930", "May 1930", "4 May 1930", "December 5, 1930", "1 January 1931"]
    assert sorted(days, key=day_number) == days

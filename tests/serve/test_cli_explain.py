"""`modegraph explain`: its output as text and as JSON, and its errors for bad input."""

import json
from pathlib import Path

import pytest

from graph.errors import UserError
from tests import commands

pytestmark = pytest.mark.usefixtures("open_hashed")
QUESTION = "Who founded the yard that built the Lantern?"


def run(*words: object) -> str:
    done = commands.run(*words)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def shown_id(index: Path, source: str) -> str:
    """The id of a passage, read from the output of `ask` as a user would."""
    heading = next(line for line in run("ask", index, QUESTION).splitlines() if f"· {source} 0–" in line)
    return heading.rpartition(" · ")[2]


def test_a_passage_that_ask_shows_can_be_explained(hashed_isles: Path) -> None:
    shown = run("explain", hashed_isles, QUESTION, "--passage", shown_id(hashed_isles, "marlow"), "--top-k", 2)
    lines = shown.splitlines()
    assert lines[0].startswith("Marlow Yard · marlow 0–") and "The Marlow Yard stands in Quill." in lines[1]
    table = {line.split()[0]: line for line in lines if line[12:26].strip().isdigit()}
    assert {"auto", "dense", "lexical", "hybrid", "hops"} <= table.keys()
    assert " 2, from " in table["dense"] and "plan" not in table
    assert "words it contains: founded (1)" in shown and "who (" not in shown and "the (" not in shown
    assert "How auto found it\n- " in shown
    assert "Lantern (ferry) · lantern 0–" in shown and "a title of this passage" in " ".join(shown.split())


def test_the_json_explanation_agrees_with_ask(hashed_isles: Path) -> None:
    passage_id = shown_id(hashed_isles, "marlow")
    explanation = json.loads(
        run("explain", hashed_isles, QUESTION, "--passage", passage_id, "--mode", "lexical", "--json")
    )
    assert explanation["passage"]["source"] == "marlow" and explanation["passage"]["id"].startswith(passage_id)
    assert (
        explanation["standings"][0]["mode"] == explanation["mode"] == "lexical" and len(explanation["standings"]) == 12
    )
    found = json.loads(run("ask", hashed_isles, QUESTION, "--mode", "lexical", "--json"))["passages"]
    place = [each["item"]["source"] for each in found].index("marlow")
    assert (explanation["standings"][0]["rank"], explanation["standings"][0]["score"]) == (
        place + 1,
        found[place]["score"],
    )
    assert explanation["before"] == found[:place] and explanation["leads"][0]["passage"]["source"] == "lantern"


def test_a_document_with_one_passage_can_be_given_instead_of_a_passage(hashed_isles: Path) -> None:
    shown = run("explain", hashed_isles, QUESTION, "--passage", "marlow")
    assert shown == run("explain", hashed_isles, QUESTION, "--passage", shown_id(hashed_isles, "marlow"))


def test_no_explanation_claims_that_a_mode_found_a_passage_that_it_does_not_rank(hashed_isles: Path) -> None:
    shown = run("explain", hashed_isles, "Heron", "--passage", "tarn", "--mode", "lexical")
    assert "lexical does not rank it\n- 0 of 1 terms" in shown and "found it" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--passage", "nothing"), "passage 'nothing': not in .*`modegraph ask` shows the ids"),
        (("--passage", "tarn", "--mode", "hosp"), "Did you mean 'hops'"),
    ],
)
def test_bad_input_is_reported_in_one_line(hashed_isles: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        run("explain", hashed_isles, QUESTION, *words)
    assert "\n" not in str(problem.value)

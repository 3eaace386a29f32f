"""The views that a notebook shows: well-formed, without scripts, and with all text of documents and models escaped."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import modegraph as mg
from modegraph.notebook import node_paths, paths_svg
from tests.fakes import ScriptedModel

HOSTILE_TEXT = "<script>alert(1)</script><img src=x onerror='alert(1)'>\"&</td></table></svg>"
QUESTION = "Who founded the yard that built the Lantern?"
HTML_TAGS = {*("div", "style", "p", "strong", "span", "table", "thead", "tbody", "tr", "th", "td", "h4")}
SVG_TAGS = {*("svg", "g", "title", "rect", "text", "line")}


class Markup(HTMLParser):
    """The elements and attributes of a view, its text, and whether its elements are properly nested."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.open = set[str](), set[str](), list[str]()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check_markup(html: str) -> Markup:
    markup = Markup(html)
    assert markup.open == [] and markup.tags <= HTML_TAGS | SVG_TAGS
    assert not any(name.startswith("on") or name in ("href", "src", "style") for name in markup.attributes)
    return markup


@pytest.fixture
def index_with_markup(isles: mg.Index) -> mg.Index:
    isles.add(
        [
            mg.Document(
                f"evil{HOSTILE_TEXT}", f"Title {HOSTILE_TEXT}", f"The Lantern Quarry of {HOSTILE_TEXT} stands in Quill."
            )
        ]
    )
    return isles


def test_markup_from_documents_and_models_is_escaped(index_with_markup: mg.Index) -> None:
    question = f"Where is the Lantern Quarry? {HOSTILE_TEXT}"
    evidence = index_with_markup.retrieve(question, top_k=6)
    shown = check_markup(evidence._repr_html_())
    assert shown.text.count("<script>alert(1)</script>") >= 3, (
        "question, title and passage should each show the markup as plain text"
    )
    model = ScriptedModel(
        lambda request: f"###Reason: {HOSTILE_TEXT} [1]\n###Answer: {HOSTILE_TEXT} [1] [2]", name=HOSTILE_TEXT
    )
    answer = index_with_markup.ask(question, model=model, top_k=6)
    assert check_markup(answer._repr_html_()).text.count("<script>") >= 4
    check_markup(index_with_markup._repr_html_())


def test_evidence_shows_rank_title_score_text_and_path(isles: mg.Index) -> None:
    evidence = isles.retrieve(QUESTION, top_k=3)
    shown = check_markup(evidence._repr_html_())
    for rank, (found, path) in enumerate(zip(evidence.passages, evidence.paths, strict=True), start=1):
        for part in (str(rank), found.item.title, f"{found.score:.3f}", found.item.text, " → ".join(path)):
            assert part in shown.text
    assert str(evidence).startswith("1. ") and "3 passages" in repr(evidence)


def test_the_noun_after_a_count_of_one_is_in_the_singular(tmp_path: Path) -> None:
    index = mg.index([mg.Document("a", "", "The Lantern burned.")], tmp_path / "index")
    evidence = index.retrieve("Lantern")
    answer = index.ask("Lantern", model=ScriptedModel(lambda request: "It burned [1]."))
    assert ", 1 document, " in repr(index) and ", 1 passage, " in repr(evidence) and ", 1 citation, " in repr(answer)
    called = replace(evidence, trace=replace(evidence.trace, model_calls=1))
    assert "1 model call<" in called._repr_html_()


def test_the_picture_of_the_paths_is_a_graph_from_the_question_to_the_passages(isles: mg.Index) -> None:
    evidence = isles.retrieve(QUESTION, top_k=3)
    paths = node_paths(evidence)
    assert [path[0] for path in paths] == [(0, QUESTION)] * 3
    assert len({path[-1][0] for path in paths}) == 1, "all passages should be in one column"
    svg = ElementTree.fromstring(paths_svg(evidence))
    boxes = {(each.get("x"), each.get("y")) for each in svg.iter("{http://www.w3.org/2000/svg}rect")}
    assert len(boxes) == len({node for path in paths for node in path})
    titles = {each.text for each in svg.iter("{http://www.w3.org/2000/svg}title")}
    assert titles >= {node[1] for path in paths for node in path}
    ends = [
        (float(each.get("x1", 0)), float(each.get("x2", 0))) for each in svg.iter("{http://www.w3.org/2000/svg}line")
    ]
    assert ends and all(start < end for start, end in ends)


def test_a_mode_without_paths_has_no_picture_and_an_empty_result_shows_nothing_found(isles: mg.Index) -> None:
    assert "<svg" not in isles.retrieve(QUESTION, mode="dense")._repr_html_()
    isles.delete(*isles.sources)
    assert "Nothing found." in check_markup(isles.retrieve(QUESTION)._repr_html_()).text


def test_an_index_shows_its_contents(isles: mg.Index) -> None:
    shown = check_markup(isles._repr_html_()).text
    assert str(isles.folder) in shown and "documents5" in shown and "generation 1" in shown
    assert repr(isles) == f"Index({str(isles.folder)!r}, 5 documents, generation 1)"


def test_a_run_shows_stage_settings_and_figures(tiny_run: mg.Run) -> None:
    run = mg.open_run(tiny_run.folder)
    shown = check_markup(run._repr_html_()).text
    assert "tiny" in shown and "learning_rate" in shown and "train_loss" in shown
    assert str(run) == str(tiny_run.folder) and run.log()[-1]["step"] == run.settings["steps"]

"""The page as a reader uses it: asks, follows citations, compares, browses; what documents and models say stays text."""

from graph.index import open_index
from tests.fakes import HashEncoder
from tests.serve.http.running import Running
from tests.serve.page.conftest import HOSTILE, HOSTILE_TITLE, KEY, Visits

PIXELS = """() => [...document.querySelectorAll(".graph canvas")].some((canvas) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, copy.width, copy.height).data.some((value) => value > 0);
})"""


def test_enter_asks_and_the_answer_streams_with_checked_citations(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("select")
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type("Who built the Lantern?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".reason")
    assert page.inner_text("#ask-button") == "Stop" and page.query_selector(".cost") is None
    page.wait_for_selector(".cost")
    assert page.inner_text("#ask-button") == "Ask"
    assert page.inner_text(".answer-text") == "<b>the Marlow Yard</b> 2"
    assert page.inner_text(".reason") == "The yard did 1, says."
    assert "A citation was removed" in page.inner_text(".answer") and "9" not in page.inner_text(".answer")
    assert [each.inner_text() for each in page.query_selector_all(".cite")] == ["2", "1"]
    assert page.query_selector(".answer b") is None


def test_a_citation_opens_its_passage_at_its_offsets(server: Running, visit: Visits) -> None:
    seen = visit(server)
    page = seen.page
    seen.ask()
    cited = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).json()["passages"][1]
    page.focus(".cite >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader mark")
    assert page.inner_text("#reader mark") == cited["text"]
    assert page.inner_text("#reader-title") == cited["title"]
    assert f"characters {cited['start']}–{cited['end']}" in page.inner_text("#reader-place")
    page.keyboard.press("Escape")
    page.wait_for_selector("#reader", state="hidden")
    assert page.evaluate("document.activeElement.className") == "cite"


def test_offsets_count_characters_as_the_index_does(server: Running, visit: Visits) -> None:
    page = visit(server).page
    page.wait_for_selector("select")
    pieces = page.evaluate(
        """async () => {
          const version = document.querySelector("script[type=module]").getAttribute("src").split("/")[1];
          const { marked } = await import(`/page/${version}/reader.js`);
          const passages = [{ start: 6, end: 9, text: "fgh" }, { start: 0, end: 5, text: "😀b𝒞de" }];
          const shown = (start, end) => marked(passages, start, end).map((node) => node.nodeName ? [node.textContent] : node);
          return [shown(1, 3), shown(4, 7), shown(0, 9), shown(0, 0)];
        }"""
    )
    assert pieces == [
        ["😀", ["b𝒞"], "de", " ", "fgh"],
        ["😀b𝒞d", ["e"], " ", ["f"], "gh"],
        [["😀b𝒞de"], " ", ["fgh"]],
        ["😀b𝒞de", " ", "fgh"],
    ]


def test_a_hostile_document_stays_text(server: Running, visit: Visits) -> None:
    seen = visit(server)
    page = seen.page
    seen.ask("Where does the wreck Zanzu lie? <img src=x onerror=alert(5)>")
    page.click(f".passage:has-text('{HOSTILE_TITLE}') >> nth=0")
    page.wait_for_selector("#reader mark")
    assert page.inner_text("#reader-text") == HOSTILE.text and page.inner_text("#reader-title") == HOSTILE_TITLE
    page.keyboard.press("Escape")
    seen.open(f"/#browse/document/{'hostile%2F%3Cb%3E.txt'}")
    page.wait_for_selector("#node h2")
    assert page.inner_text("#node h2") == HOSTILE_TITLE
    assert page.query_selector("main img, main script, main svg, dialog img, dialog script, dialog svg") is None


def test_the_way_is_drawn_and_told_in_words(server: Running, visit: Visits) -> None:
    seen = visit(server)
    page = seen.page
    seen.ask()
    page.wait_for_function(PIXELS)
    page.click(".paths summary")
    found = server.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).json()["passages"]
    told = page.eval_on_selector_all(".paths ol li", "items => items.map((item) => item.textContent)")
    assert len(told) == len(found) and all(
        " → ".join(each["path"]) in line for each, line in zip(found, told, strict=True)
    )


def test_modes_and_models_side_by_side(server: Running, visit: Visits) -> None:
    seen = visit(server, viewport={"width": 1280, "height": 800})
    page = seen.page
    page.click("#compare")
    page.select_option("select >> nth=0", "dense")
    page.select_option("select >> nth=2", "lexical")
    page.select_option("select >> nth=3", "sft")
    page.fill("#k", "2")
    seen.ask()
    page.wait_for_function("() => document.querySelectorAll('.cost').length === 2")
    costs = [each.inner_text() for each in page.query_selector_all(".cost")]
    assert [cost.split(" · ")[0] for cost in costs] == ["dense", "lexical"]
    boxes = [each.bounding_box() for each in page.query_selector_all(".column")]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    assert server.metric('modegraph_tokens_total{kind="completion",model="sft"}') == 3
    page.click(".remove >> nth=1")
    assert len(page.query_selector_all(".column")) == 1


def test_layers_names_and_documents_can_be_browsed(server: Running, visit: Visits, isles_and_hostile) -> None:  # type: ignore[no-untyped-def]
    seen = visit(server)
    page = seen.page
    data = open_index(isles_and_hostile, lambda spec: HashEncoder()).data
    page.click("nav >> text=Browse")
    layers = sorted(set(data.summary_layer_S.tolist()))
    page.wait_for_selector("#shelf details" if layers else "#shelf >> text=no summaries")
    assert len(page.query_selector_all("#shelf details")) == len(layers)
    page.click("[data-shelf=documents]")
    page.wait_for_selector("#shelf a >> text=Ada Marlow")
    assert len(page.query_selector_all("#shelf a")) == len(data.document_sources)
    page.click("[data-shelf=names]")
    page.fill("#names-field", "marlow yard")
    page.wait_for_function("() => document.querySelectorAll('#shelf a').length === 1")
    page.focus("#shelf a")
    page.keyboard.press("Enter")
    page.wait_for_selector("#node h3")
    assert page.inner_text("#node .kind").lower() == "name" and "The Marlow Yard stands in Quill." in page.inner_text(
        "#node"
    )
    page.wait_for_function(PIXELS)


def test_a_server_with_a_key_asks_for_it(locked: Running, visit: Visits) -> None:
    seen = visit(locked)
    page = seen.page
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key-field", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#key-told.problem")
    page.fill("#key-field", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("select")
    seen.ask()
    assert page.evaluate("sessionStorage.getItem('modegraph-key')") == KEY
    assert page.evaluate("localStorage.length") == 0 and page.context.cookies() == []
    refused = [each for each in seen.problems if "401" in each]
    assert len(refused) == len(seen.problems)  # Chromium itself notes each 401; nothing else went wrong.
    seen.problems.clear()


def test_light_dark_and_narrow(server: Running, visit: Visits) -> None:
    def brightness(scheme: str) -> int:
        page = visit(server, color_scheme=scheme, viewport={"width": 400, "height": 800}).page
        page.wait_for_selector("select")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        paper, ink = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
        return int(paper[4:].split(",")[0]) - int(ink[4:].split(",")[0])

    assert brightness("light") > 150 and brightness("dark") < -150

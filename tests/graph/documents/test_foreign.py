"""Untrusted files: HTML is read in linear time and no text is repeated, PDF is read within limits, and both are read in a process that can be killed."""

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hostile_files import HTML, PDF, bomb, forms, hostile_file, pages, stream
from graph.documents.parse.formats import Limits
from graph.documents.parse.html_text import html_text, main_text, tokens
from graph.documents.read import read_bytes, read_documents
from graph.documents.sandbox import ParseWorker
from graph.errors import UserError
from tests.growth import assert_linear
from tests.processes import parsers_below, runs


def text_of(file: Path, content: str) -> str:
    file.write_text(content, encoding="utf-8")
    (document,) = read_documents(file, print)
    return document.text


def cpu_seconds() -> float:
    """User processor seconds of this process and of the child processes that it waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_utime for kind in kinds)


def test_nested_tables_give_their_text_once(tmp_path: Path) -> None:
    assert text_of(tmp_path / "a.html", "<table><tr><td>" * 3 + "Deep text.") == "| Deep text. |"
    markup = "<table><tr><td>before<td><table><tr><th>in<td>side</table>after<td>last</table>end"
    lines = [line for line in text_of(tmp_path / "b.html", markup).splitlines() if line]
    assert lines == ["| before | |", "| in | side |", "after", "| last |", "end"]


def test_a_cell_that_spans_rows_or_columns_is_repeated_in_them(tmp_path: Path) -> None:
    markup = (
        "<table><tr><th colspan=3>Ships of the isles<tr><th>Year<th>Ship<th>Captain"
        "<tr><td rowspan='2'>1911<td>Lantern<td>Ada<tr><td>Tern<td>Jonas<tr><td>1912<td colspan=2>none</table>"
    )
    rows = [
        "| Ships of the isles |",
        "| Year | Ship | Captain |",
        "| 1911 | Lantern | Ada |",
        "| 1911 | Tern | Jonas |",
    ]
    assert text_of(tmp_path / "a.html", markup).split("\n\n") == [*rows, "| 1912 | none | none |"]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            "10<sup>6</sup> kg in 1911<sup><a>2</a></sup>, the 5<sup>th</sup>, on 3 m<sup>2</sup>",
            "10^6 kg in 1911^2, the 5th, on 3 m2",
        ),
        ("<td>10<sup>6</sup><td>7", "| 10^6 | 7 |"),
        ("10<sup></sup>6 in 1911<sup>1</sup>2 boats, 10<sup>-3</sup>", "106 in 1911^1 2 boats, 10^-3"),
        ("<h1>10<sup>6</sup></h1>", "10^6"),
        ("<math><mn>3</mn><mfrac><mn>1</mn> <mrow><mn>2</mn></mrow></mfrac><mi>x</mi></math>", "3 1/2x"),
        (
            "<math><mfrac><mrow><mi>a</mi><mo>+</mo><mspace/><mi>b</mi></mrow><mi>c</mi></mfrac></math> <b>d</b>",
            "(a+b)/c d",
        ),
    ],
)
def test_superscripts_and_fractions_are_separated_from_other_digits(markup: str, text: str) -> None:
    assert html_text(markup).text == text


def test_two_empty_lines_separate_adjacent_tables_and_only_them(tmp_path: Path) -> None:
    table = "<table>\n<tr><td>Stop<td>Fare</tr>\n<tr><td>Quay<td>3</tr>\n</table>\n"
    text = text_of(tmp_path / "a.html", f"{table}{table}<p>End.</p>")
    rows = "| Stop | Fare |\n\n| Quay | 3 |"
    assert text == f"{rows}\n\n\n{rows}\n\nEnd."


SPANS = "<table>" + "<td rowspan=9999 colspan=100>x" * 3_000 + "<tr><td>y" * 9_000


@pytest.mark.parametrize(
    "markup", ["<table><tr><td>" * 500, "<br>" * 16_000, "<!--" * 16_000, "<b></i>" * 9_000, SPANS]
)
def test_repetitive_html_is_read_within_two_seconds(tmp_path: Path, markup: str) -> None:
    before = cpu_seconds()
    assert "Deep text." in text_of(tmp_path / "a.html", markup + "Deep text.")
    assert cpu_seconds() - before < 2


@pytest.mark.parametrize("kind", HTML)
def test_html_is_read_in_linear_time(kind: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        markup = HTML[kind](Random(1), size).decode()
        return lambda: html_text(markup)

    assert_linear(prepare, 20_000)


def test_html_gives_blocks_of_text_and_a_title() -> None:
    page = html_text(
        "one<p>two <b>bo</b>ld<br>three<li>four H<sub>2</sub>O</p><h1>Not the title</h1><title>A &amp; B</title>"
    )
    assert page.title == "A & B"
    assert page.text.split("\n") == ["one", "", "two bold", "three", "four H2O", "", "Not the title"]
    assert html_text("<h1>First <i>one</i></h1><h1>Second</h1>").title == "First one"
    form = "<details><summary>a</summary>b</details><select><option>c<option>d</select><legend>e</legend><center>f</center>g"
    assert html_text(form).text.split() == list("abcdefg")
    assert html_text("<h1>Port<br>Ellery<p>Harbour</p></h1>").title == "Port Ellery Harbour"
    assert (
        html_text("<script>a<b</script>b<style>c</style><noscript>d</noscript><template><p>e</template>f").text == "bf"
    )
    assert html_text("<script src='x'/>shown<title/>").text == "shown"
    assert html_text("<![if !vml]>a<![endif]><!-- b -->c<!doctype d>e</ f>g<?h?>i&#xD800;").text == "acegi\ufffd"
    assert html_text("1 < 2 <3 and <b title='a>b'>c</b> &lt;d&gt; <e").text == "1 < 2 <3 and c <d> <e"


TAGS = st.sampled_from(["p", "B", "td", "tr", "table", "li", "a", "div", "section", "title", "h1"])
ATTRIBUTES = st.sampled_from(["", " a", ' b="x>y"', " c='\"'", " d=e", ' f = "g"', ' h=""'])
PIECES = st.one_of(
    st.builds("<{}{}>".format, TAGS, ATTRIBUTES),
    st.builds("</{}>".format, TAGS),
    st.text(st.characters(codec="utf-8", exclude_characters="<&\0\r"), max_size=9),
    st.sampled_from(["&amp;", "&lt;", "&#65;", "&nbsp;", "<br/>", "<!-- <p> -->"]),
)


class StandardParser(HTMLParser):
    """The standard library's parser, which is correct for valid markup."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(("start", tag))

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.found.append(("start", tag))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag))

    def handle_data(self, data: str) -> None:
        self.found.append(("text", data))


def join_texts(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The tokens, with adjacent text tokens joined."""
    merged: list[tuple[str, str]] = []
    for kind, value in found:
        if kind == "text" and merged and merged[-1][0] == "text":
            value = merged.pop()[1] + value
        merged.append((kind, value))
    return merged


WEB_PAGE = (
    "<title>Leave</title><a href='#main' class='skip-link'>Skip</a><div id=cookie-banner>We use <div>cookies</div>.<button>OK</button></div>"
    "<header><nav><ul><li>Home<li>Pay</ul></nav></header><ol class='wy breadcrumbs'><li>Handbook</ol>"
    "<main><article><header><h1>Leave</h1></header><p>Everyone has 27 days of leave a year, and sick pay for six weeks.</p>"
    "<footer>Updated in May.</footer></article></main>"
    "<div role='dialog'>Sign up!</div><footer>Brindle Works, 2 Quay <nav>Imprint</nav></footer>"
)


def test_text_around_the_main_text_is_left_out() -> None:
    main = main_text(WEB_PAGE)
    assert main.title == "Leave"
    text = " ".join(main.text.split())
    assert text == "Leave Everyone has 27 days of leave a year, and sick pay for six weeks. Updated in May."
    whole = html_text(WEB_PAGE).text
    assert all(words in whole for words in ("We use", "Home", "Handbook", "Sign up!", "Brindle Works", "Imprint"))


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<nav>Home</nav>", "Home"),
        ("<nav>Home<p>Everyone has leave.", "Home Everyone has leave."),
        (
            "<p>Notice.</p><div class='cookie-policy'>We keep two cookies for a year, and no others.</div>",
            "Notice. We keep two cookies for a year, and no others.",
        ),
        ("<p>We bake them by hand.</p><div class='cookiecutter'>Of tin.</div>", "We bake them by hand. Of tin."),
        (
            "<p>We bake cookies by hand, every day of the week.</p><div class='a cookie'>We use cookies.</div>",
            "We bake cookies by hand, every day of the week.",
        ),
        ("<p>High at noon.</p><footer>Port of Tarn", "High at noon. Port of Tarn"),
        ("<nav>Home<nav>Pay</nav>More</nav><p>High at noon.</p>", "High at noon."),
        (
            "<p>We bake every day.</p><section id=cookies><h2>Cookies</h2>Of tin.</section><h2 id='consent'>Consent</h2>",
            "We bake every day. Cookies Of tin. Consent",
        ),
        (
            "<p>We bake every day.</p><section id=cookie-banner>Of tin.</section><main><div id='cookie-consent'>Yes?</div></main>",
            "We bake every day.",
        ),
        (
            "<p>We bake every day.</p><section id='cookie-tins'><h2>Cookie tins</h2>Of tin.</section>",
            "We bake every day. Cookie tins Of tin.",
        ),
        (
            "<main><p>We bake every day.</p><div id=cookies>Of tin.</div><div class=breadcrumbs>Home</div></main>",
            "We bake every day. Of tin.",
        ),
    ],
)
def test_text_is_left_out_only_if_it_is_clearly_outside_the_main_text(markup: str, text: str) -> None:
    assert " ".join(main_text(markup).text.split()) == text


def test_whole_pages_are_read_on_request(tmp_path: Path) -> None:
    (tmp_path / "leave.html").write_text(WEB_PAGE)
    texts = {whole: next(read_documents(tmp_path, print, Limits(whole_pages=whole))).text for whole in (False, True)}
    assert texts == {False: main_text(WEB_PAGE).text, True: html_text(WEB_PAGE).text}


@given(st.lists(PIECES, max_size=20))
@settings(max_examples=300, deadline=None)
def test_valid_markup_is_read_as_the_standard_library_reads_it(pieces: list[str]) -> None:
    markup = "".join(piece for piece in pieces if not re.match(r"</?title", piece))
    twin = StandardParser()
    twin.feed(markup)
    twin.close()
    assert join_texts([token[:2] for token in tokens(markup)]) == join_texts(twin.found)


@given(st.text(st.sampled_from("<>!-/'\"= abtd&#;1\n"), max_size=60))
@settings(max_examples=500, deadline=None)
def test_no_markup_makes_parsing_fail(markup: str) -> None:
    main_text(markup)
    assert (
        html_text(markup.replace("<", "")).text.split()
        == html_text(markup.replace("<", "&lt;")).text.replace("<", "").split()
    )


def test_hostile_files_are_read_or_refused_within_limits() -> None:
    """Each kind of hostile file, within the limits of the worker; benchmarks/uploads.py reads 300 files of up to 1 MiB."""
    limits, parsed = Limits(seconds=0.5, memory_mb=256), []
    with ParseWorker(limits) as worker:
        for number in range(len(HTML) + len(PDF)):
            name, data = hostile_file(number, seed=1, largest=30_000)
            try:
                read_bytes(data, name, name, worker)
                parsed.append(name)
            except UserError as problem:
                assert name in str(problem)
            assert worker.last.cpu_s < 0.7 and worker.last.peak_mb <= 256, (name, worker.last)
    assert len([name for name in parsed if name.endswith(".html")]) == len(HTML)
    assert "021-sound.pdf" in parsed and "022-much-text.pdf" in parsed


def test_a_file_over_a_limit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    slow, large = tmp_path / "slow.pdf", tmp_path / "large.pdf"
    slow.write_bytes(forms(14, 10)(Random(0), 0))
    with pytest.raises(
        UserError, match=r"slow\.pdf: not read in 0\.3 s of processor time or 1\.8 s of elapsed time.*--file-seconds"
    ):
        list(read_documents(slow, print, Limits(seconds=0.3)))
    large.write_bytes(bomb(b"BT (salt) Tj ET\n", 70)(Random(0), 1 << 20))
    with pytest.raises(UserError, match=r"large\.pdf: needs more than 128 MiB of memory.*--file-memory-mb"):
        list(read_documents(large, print, Limits(seconds=30, memory_mb=128)))


def test_one_process_reads_many_files_but_no_plain_text_and_is_replaced_when_killed() -> None:
    with ParseWorker(Limits()) as worker:
        assert read_bytes(b"# A\n", "a.md", "a.md", worker).title == "A" and worker._process is None
        read_bytes(b"<p>a", "a.html", "a.html", worker)
        first = worker._process
        read_bytes(pages([stream(b"BT /F1 9 Tf (b) Tj ET")]), "b.pdf", "b.pdf", worker)
        assert first is not None and worker._process is first
        os.kill(first.pid, 9)
        first.wait()
        assert read_bytes(b"<p>c", "c.html", "c.html", worker).text == "c" and worker._process is not first
        last = worker._process
    assert last is not None and last.returncode is not None


def test_a_truncated_reply_counts_as_no_reply() -> None:
    """A reader that is killed while it writes leaves such a reply: the error names the file, and a new process reads the next one."""
    cut = """import sys; sys.stdin.buffer.readline()
sys.stdout.write('{"bytes": 99, "signal": 0, "code": 0, "cpu_s": 0.0, "peak_mb": 1.0}\\n{"title": "a", "te')"""
    for ending, named in (("", "status 0"), ("; sys.stdout.flush(); import os; os.kill(os.getpid(), 9)", "signal 9")):
        with ParseWorker(Limits()) as worker:
            command = [sys.executable, "-c", cut + ending]
            worker._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            with pytest.raises(UserError, match=rf"a\.html: its reader ended with {named}"):
                worker.parse(b"<p>a", ".html", "a.html")
            assert worker.parse(b"<p>c", ".html", "c.html").text == "c"


def test_closing_the_worker_stops_its_processes() -> None:
    endless, problems = forms(14, 10)(Random(0), 0), list[UserError]()

    def read(worker: ParseWorker) -> None:
        try:
            worker.parse(endless, ".pdf", "endless.pdf")
        except UserError as problem:
            problems.append(problem)

    with ParseWorker(Limits(seconds=60)) as worker:
        thread = Thread(target=read, args=(worker,))
        thread.start()
        while worker._process is None or not parsers_below(worker._process.pid):
            time.sleep(0.01)
        forks = parsers_below(worker._process.pid)
    thread.join(20)
    assert not thread.is_alive() and problems
    while any(runs(fork) for fork in forks):
        time.sleep(0.01)


def test_the_worker_imports_no_large_package_and_inherits_no_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = "import sys, graph.documents.parse.child, pypdf; print([m for m in ('torch', 'numpy', 'faiss') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    monkeypatch.setenv("MODEGRAPH_API_KEY", "secret")
    with ParseWorker(Limits()) as worker:
        worker.parse(b"x", ".html", "x.html")
        assert worker._process is not None
        assert b"secret" not in Path(f"/proc/{worker._process.pid}/environ").read_bytes()


def test_a_lone_surrogate_is_replaced() -> None:
    content = stream(b"BT /F2 9 Tf 72 720 Td <0001> Tj ET")
    cmap = stream(b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfchar <0001> <0041D800> endbfchar")
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 7 0 R >>"
    with ParseWorker(Limits()) as worker:
        text = worker.parse(pages([content], more=[font, cmap], fonts=b"/F2 6 0 R"), ".pdf", "a.pdf").text
    text.encode()
    assert text.startswith("A")

"""Units, entities and propositions extracted by rules, on sentences that a careless implementation gets wrong (docs/developers/behaviours.md, 13)."""

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graph.documents.split import split_passages
from graph.extract.entities import entity_key, find_entities, title_keys
from graph.extract.rules import extract_by_rules
from graph.text.sentences import headers_at, spell_out_rows, split_units
from graph.types import Document, Passage
from tests.growth import assert_linear

TABLE = "Fares rose.\n\n| Stop | Fare |\n|---|---:|\n| Quill | 3 |\n| Tarn | |\n\n- Kelp bread\n- Salt. And tea."


def propositions(text: str, title: str = "") -> list[str]:
    document = Document("d", title, text)
    passage = Passage("p", "d", title, 0, 0, len(text), text)
    return [occurrence.text for occurrence in extract_by_rules(document, [passage])[0]]


def test_units_are_sentences_list_items_and_table_rows_with_their_header() -> None:
    units = list(split_units(TABLE))
    assert [unit.text for unit in units] == [
        "Fares rose.",
        "| Quill | 3 |",
        "| Tarn | |",
        "Kelp bread",
        "Salt.",
        "And tea.",
    ]
    assert units[1].cells == (("Stop", "Quill"), ("Fare", "3")) and units[2].cells == (("Stop", "Tarn"),)


def test_prose_after_a_line_that_begins_with_a_bar_is_not_lost() -> None:
    units = list(split_units("| Ada wrote it.\nBob | Eve read it."))
    assert [unit.text for unit in units] == ["| Ada wrote it.", "Bob | Eve read it."]


@given(st.text(st.sampled_from("ab .!?\n|-#*é😀1"), max_size=80))
def test_unit_offsets_match_their_texts(text: str) -> None:
    last = 0
    for unit in split_units(text):
        assert text[unit.start : unit.end] == unit.text == unit.text.strip()
        assert unit.start >= last, "units overlap"
        last = unit.end


@given(st.text(st.sampled_from("abc déf. \n#|東。؟"), min_size=1, max_size=400), st.integers(3, 30))
def test_passage_offsets_match_their_texts_and_only_white_space_is_left_out(text: str, max_tokens: int) -> None:
    document = Document("d", "", text)
    passages = split_passages(document, max_tokens, len)
    assert all(text[p.start : p.end] == p.text and p.text.strip() and len(p.text) <= max_tokens for p in passages)
    covered = {i for p in passages for i in range(p.start, p.end)}
    assert all(text[i].isspace() for i in range(len(text)) if i not in covered)
    assert sum(len(p.text) for p in passages) == len(covered), "passages overlap"


def test_passages_of_a_chinese_text_are_cut_at_sentence_ends() -> None:
    text = "塔由林建国，设计。塔高三百米！它何时建成？旧塔已毁，无人记得。"
    (*passages,) = split_passages(Document("d", "", text), 16, len)
    assert [passage.text for passage in passages] == [
        "塔由林建国，设计。塔高三百米！",
        "它何时建成？旧塔已毁，无人记得。",
    ]
    costly = split_passages(Document("d", "", text), 16, lambda piece: len(piece) + 8 * piece.count("。"))
    assert all(len(passage.text) + 8 * passage.text.count("。") <= 16 for passage in costly)
    assert "".join(passage.text for passage in costly) == text


@pytest.mark.parametrize(
    ("sentence", "entities"),
    [
        ("In 1911 the ferry Lantern of Port Ellery carried J. Brandt.", ("Lantern of Port Ellery", "J. Brandt")),
        ('Dr. Jan van der Berg wrote "The Long Way".', ("Dr. Jan van der Berg", "The Long Way")),
        ("He was born on 2 November 1932 in St. Petersburg, Russia.", ("2 November 1932", "St. Petersburg", "Russia")),
        ("Apollo 11 landed; NASA cheered.", ("Apollo 11", "NASA")),
        ("The mill's wheel weighs 3.5 tonnes and turns at −3.5 °C.", ("3.5 tonnes", "−3.5 °C")),
        ("Bread is baked.", ()),
        ("《红楼梦》是曹雪芹的小说，他说“石头记”。", ("红楼梦", "石头记")),
        ("Sonyは東京のIBMと「夢の塔」を造った。", ("Sony", "IBM", "夢の塔")),
        ("「行こう。」と言った。", ()),
        ("高さは333メートルで、1958年12月23日に完成した。", ("333メートル", "1958年12月23日")),
        ("탑은 1958년 12월 23일에 섰고 높이는 12 km이다.", ("1958년 12월 23일",)),
        ("يبلغ ارتفاع البرج 300 متر في Cairo.", ("300 متر", "Cairo")),
        ("Ada Marlow's yard launched her.", ("Ada Marlow",)),
        (
            "From Ma\u0301laga he saw Jose\u0301 Pen\u0303a and Lan\u00adtern Bay.",
            ("Málaga", "José Peña", "Lantern Bay"),
        ),
        ("They call him Ива\u0301н Петро\u0301в in Russian.", ("Ива\u0301н Петро\u0301в", "Russian")),
        (
            "The k-1 500 m race is 1 000 km or 12\u202f000 km away, in 1911 300 m.",
            ("500 m", "1 000 km", "12\u202f000 km", "300 m"),
        ),
    ],
)
def test_entities_of_a_sentence_are_found(sentence: str, entities: tuple[str, ...]) -> None:
    assert find_entities(sentence) == entities


def test_chinese_brackets_and_quotation_marks_are_not_part_of_a_name() -> None:
    assert entity_key("红楼梦（电影）") == entity_key("《红楼梦》") == "红楼梦"
    assert title_keys("东京（城市）") == ("东京",) and title_keys("서울") == ("서울",) and title_keys("IT") == ()


def test_a_single_capitalised_word_at_a_sentence_start_is_an_entity_only_if_already_known() -> None:
    assert find_entities("Lantern sailed.") == ()
    assert find_entities("Lantern sailed.", {entity_key("The Lantern (ferry)")}) == ("Lantern",)


def test_the_time_to_find_entities_does_not_grow_with_the_number_of_known_ones() -> None:
    def prepare(size: int) -> Callable[[], object]:
        known = {f"boat {n}" for n in range(10 * size)}
        return lambda: [find_entities("Lantern sailed.", known) for _ in range(size)]

    assert_linear(prepare, 500)


def test_the_time_to_find_quantities_grows_in_proportion_to_the_text() -> None:
    def prepare(size: int) -> Callable[[], object]:
        return lambda: find_entities("1,2,3,4," * size + "100 " * size)

    assert_linear(prepare, 200)


def test_the_subject_replaces_pronouns_and_is_prefixed_to_sentences_that_do_not_name_it() -> None:
    text = "Lantern is a ferry. She was built in 1911. Her funnel is cream. Repairs cost much."
    assert propositions(text, "Lantern (ferry)") == [
        "Lantern is a ferry.",
        "Lantern was built in 1911.",
        "Lantern's funnel is cream.",
        "Lantern: Repairs cost much.",
    ]


@pytest.mark.parametrize(
    ("title", "text", "last"),
    [
        ("Workshop safety", "Ines Calloway is in charge. She took over in May.", "Ines Calloway took over in May."),
        ("Workshop safety", "Rules apply. It has a post box.", "It has a post box."),
        ("Staff handbook", "Read this first. He succeeded Ines Calloway.", "He succeeded Ines Calloway."),
        ("Ada Marlow", "Ada Jane Marlow built boats. She died in 1981.", "Ada Marlow died in 1981."),
        ("Ada Marlow", "Ada Marlow built boats. Jonas Reed was mayor. He died in 1981.", "Jonas Reed died in 1981."),
        ("Ada Marlow", "Ada Marlow built boats. She sold them. Jonas Reed left. He died. She wept.", "She wept."),
        ("Ada Marlow", "Ada Marlow built boats. Tarn paid Jonas Reed. He died.", "He died."),
        ("Ada Marlow", "Ada Marlow built boats. It paid.", "It paid."),
        ("Tarn", "Tarn is a town. It has a mill.", "Tarn has a mill."),
        ("Tarn", "Tarn is a town. The mill closed. It burned.", "It burned."),
        ("Tarn", "Tarn is a town. They meet on Mondays.", "They meet on Mondays."),
        ("Tarn Dodgers", "The Tarn Dodgers are a team. They meet on Mondays.", "Tarn Dodgers meet on Mondays."),
        ("Tarn", "Tarn is a town. It is 12 km from Quill to Port Ellery.", "It is 12 km from Quill to Port Ellery."),
        (
            "Tarn",
            "Tarn is a town. It is very likely that the mine will close.",
            "It is very likely that the mine will close.",
        ),
        ("Tarn", "Tarn is a town. It is easy for a guest to get lost.", "It is easy for a guest to get lost."),
        ("Tarn", "Tarn is a town. It rained in May.", "It rained in May."),
        ("Tarn", "Tarn is a town. It was built to guard the bay.", "Tarn was built to guard the bay."),
        ("Lantern", "Lantern is a game. Its author is Jan van der Berg. He retired.", "He retired."),
        ("Lantern", "Lantern is a game by Jan van der Berg. He retired.", "He retired."),
        ("Lantern", "Lantern is a game. The mill burned. It paid. She wept.", "She wept."),
        ("Apple", "Apple was founded by Steve Jobs and Steve Wozniak. He left in 1985.", "He left in 1985."),
        ("Cher", "Cher (born Cherilyn Sarkisian) is a singer. She was born in May.", "Cher was born in May."),
        ("Cher", "Cher (produced by Ada Berg) is a singer. She sang.", "Cher sang."),
        ("Pelé", "Pelé was the best player of Santos Futebol. He scored.", "Pelé scored."),
        ("Aristotle", "Aristotle was born in Northern Greece. He taught.", "Aristotle taught."),
        ("Madonna", "Madonna Louise Ciccone is a singer. She sang.", "Madonna sang."),
        ("Lantern", "Lantern is a game. Jan Berg made it. He retired.", "Jan Berg retired."),
        ("Ada Marlow", "Ada Marlow sailed. Her boat sank.", "Ada Marlow's boat sank."),
        ("Orrin", "Orrin was a king. In his youth, he fled. He died in 990.", "Orrin died in 990."),
        ("Oslo", "Oslo er en by i Norge. Her ligger slottet.", "Her ligger slottet."),
        ("Ribe", "Ribe er en by. Her er mange for at se.", "Her er mange for at se."),
        ("Ankara", "Ankara bir şehir. Her yıl büyür.", "Her yıl büyür."),
        ("Arnulf III, Count of Tarn", "Arnulf III of Tarn was a son of Arnulf II. He died in 990.", "He died in 990."),
    ],
)
def test_a_pronoun_is_replaced_only_where_its_referent_is_clear(title: str, text: str, last: str) -> None:
    assert propositions(text, title)[-1] in (last, f"{title}: {last}")


def test_a_subject_is_recognised_with_decomposed_accents_and_soft_hyphens() -> None:
    text = "Jose\u0301 Pen\u0303a built the Lan\u00adtern. He sailed it."
    expected = ["José Peña built the Lantern.", "José Peña sailed it."]
    assert propositions(text, "Jose\u0301 Pen\u0303a") == propositions(text, "José Peña") == expected
    assert title_keys("Jose\u0301 Pen\u0303a") == title_keys("José Pe\u00adña")


def test_a_title_that_names_a_topic_is_not_an_entity() -> None:
    text = "Sick pay is full for four weeks. Ask Ines Calloway."
    document = Document("d", "Leave and holidays", text)
    (found,) = extract_by_rules(document, [Passage("p", "d", "Leave and holidays", 0, 0, len(text), text)])
    assert [one.text for one in found] == [
        f"Leave and holidays: {one}" for one in text.replace(". A", ".|A").split("|")
    ]
    assert "Leave and holidays" not in {entity for one in found for entity in one.entities}


def test_a_table_row_becomes_a_statement_with_headers_and_subject() -> None:
    assert "Tram fares: Stop: Quill; Fare: 3" in propositions(TABLE, "Tram fares")


def test_a_table_row_with_one_word_and_numbers_is_a_proposition() -> None:
    table = "|  | 2019 | 2020 |\n|---|---|---|\n| Revenue | 512 | 530 |\n| | 40 | 35 |\n| | | |"
    assert propositions(table, "Tarn") == ["Tarn: Revenue; 2019: 512; 2020: 530", "Tarn: 2019: 40; 2020: 35"]


@pytest.mark.parametrize(
    "text",
    [
        "The bell rings at 10:30 daily.",
        "See https://example.org/a_b?c=1 for more.",
        "The field snake_case_name (old (nested) form) is kept.",
        "The code ends in <|endoftext|> and nothing more.",
        "Silence is golden.",
    ],
)
def test_colons_urls_brackets_and_special_tokens_are_preserved(text: str) -> None:
    assert propositions(text) == [text]


def test_offsets_point_at_the_original_wording() -> None:
    text = "Lantern is a ferry.  She was\nbuilt in 1911."
    document = Document("d", "Lantern", text)
    (found,) = extract_by_rules(document, [Passage("p", "d", "Lantern", 0, 0, len(text), text)])
    assert [text[s.start : s.end] for s in found] == ["Lantern is a ferry.", "She was\nbuilt in 1911."]
    assert found[1].text == "Lantern was built in 1911." and found[1].entities == ("Lantern",)


TABLES = st.lists(
    st.sampled_from(["| a | b |", "| 1 | 2 |", "|---|---|", "Prose here.", "# Head", "", "\n", "* item", "| x | |"]),
    max_size=14,
)


@given(TABLES, st.data())
def test_table_rows_keep_their_header_when_a_text_is_read_in_parts(lines: list[str], data: st.DataObject) -> None:
    """Parts begin at any line, but no part ends within the rows above the first rule of a table."""
    whole = list(split_units("\n".join(lines)))
    at = data.draw(st.integers(0, len(lines)))
    first, second = "\n".join([*lines[:at], ""]), "\n".join(lines[at:])
    rows = re.findall(r"(?:^\|.*\n)+\Z", first, re.MULTILINE)
    assume(not rows or re.search(r" \|\n\|---", rows[0]) or not re.match(r"(?:\|.*\n)*\|---", second))
    (header,) = headers_at("\n".join(lines), [len(first)])
    parts = [*split_units(first), *split_units(second, header)]
    expected = [(unit.text, unit.cells) for unit in whole if unit.kind == "row"]
    assert [(unit.text, unit.cells) for unit in parts if unit.kind == "row"] == expected


def test_a_separator_line_starts_a_table_and_prose_ends_one() -> None:
    two = "| a | b |\n|---|---|\n| 1 | 2 |\n\n| c | d |\n|---|---|\n| 3 | 4 |"
    assert [unit.cells for unit in split_units(two)] == [(("a", "1"), ("b", "2")), (("c", "3"), ("d", "4"))]
    starts = [0, two.index("| 1"), two.index("| c"), two.rindex("\n|-") + 1, two.index("| 3"), two.index(" 4")]
    assert list(headers_at(two, starts)) == [(), ("a", "b"), (), ("c", "d"), ("c", "d"), ("c", "d")]
    cut = "3 |\n| 1 | 2 |\nEnd."
    assert list(headers_at(cut, [0, 4, 14], ("x", "y"))) == [("x", "y"), ("x", "y"), ()]
    assert [unit.line for unit in split_units(cut, ("x", "y"))] == ["3 |", "x: 1; y: 2", "End."]


def test_two_empty_lines_end_a_table() -> None:
    two = "| a | b |\n\n| 1 | 2 |\n\n\n| c | d |\n| 3 | 4 |"
    assert [unit.line for unit in split_units(two)] == ["a: 1; b: 2", "c: 3; d: 4"]
    assert list(headers_at(two, [two.index("| c"), two.index("| 3")])) == [(), ("c", "d")]


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        ("| Fares of 2026 |  |\n| Stop | Fare |\n| Quay | 3 |", ["Fares of 2026", "Stop: Quay; Fare: 3"]),
        ("| Dear Ada. It burned. |\n\nEnd.", ["Dear Ada.", "It burned.", "End."]),
        (r"| Bring a \| b. | Bye. |", [r"Bring a \| b.", "Bye."]),
        ("| Dear Ada |\n| It burned. |", ["Dear Ada", "It burned."]),
        ("| Stop |\n| --- |\n| Quay |", ["Stop: Quay"]),
        ("|  | Fare |\n| Quay | 3 |", ["Quay; Fare: 3"]),
        ("| | |\n|---|---|\n| Name | Ferry |\n| Length | 30 m |", ["Name; Ferry", "Length; 30 m"]),
        ("| grep a | sort \\\n| grep b | uniq", ["grep a", "sort \\", "grep b", "uniq"]),
    ],
)
def test_rows_without_a_header_are_read_as_text(table: str, lines: list[str]) -> None:
    assert [unit.line for unit in split_units(table)] == lines


@pytest.mark.parametrize("row", ["|  |  |", "|---|---|"])
def test_empty_rows_and_rules_between_rows_are_left_out(row: str) -> None:
    table = f"| Stop | Fare |\n|---|---|\n| Quay | 3 |\n{row}\n| Mill | 4 |"
    assert [unit.line for unit in split_units(table)] == ["Stop: Quay; Fare: 3", "Stop: Mill; Fare: 4"]
    assert list(headers_at(table, [table.index("| Mill")])) == [("Stop", "Fare")]


@pytest.mark.parametrize("rule", ["| - | - |", "| - | -", "|-|-|"])
def test_single_dashes_are_a_rule_directly_below_the_first_row(rule: str) -> None:
    for table in (
        f"| Stop | Fare |\n{rule}\n| Quay | 3 |",
        f"| a | b |\n| 1 | 2 |\n\n| Stop | Fare |\n{rule}\n| Quay | 3 |",
    ):
        assert list(split_units(table))[-1].line == "Stop: Quay; Fare: 3"
        assert "-" not in spell_out_rows(table)


def test_single_dashes_elsewhere_are_a_row() -> None:
    table = "| Stop | Fare |\n| Quay | 3 |\n| - | - |\n| Mill | 4 |"
    assert [unit.line for unit in split_units(table)][1:] == ["Stop: -; Fare: -", "Stop: Mill; Fare: 4"]
    assert [unit.line for unit in split_units("| - | - |", ("Stop", "Fare"))] == ["Stop: -; Fare: -"]


def test_only_the_first_rule_of_a_table_makes_the_row_above_it_the_header() -> None:
    titled = "| Fares | 2024 |\n| Tarn | Quill |\n| Stop | Fare |\n|---|---|\n| Quay | 3 |\n"
    table = f"{titled}| Mill | 4 |\n|---|---|\n| All | 7 |"
    rows = ["Stop: Quay; Fare: 3", "Stop: Mill; Fare: 4", "Stop: All; Fare: 7"]
    assert [unit.line for unit in split_units(table)] == ["Fares", "2024", "Tarn", "Quill", *rows]
    for start, left in ((table.index("| Tarn"), 3), (table.index("| Stop"), 3), (len(titled), 2)):
        (header,) = headers_at(table, [start])
        units = split_units(table[start:], header)
        assert [unit.line for unit in units if unit.kind == "row"] == rows[-left:]


def test_a_table_without_closing_bars_has_a_header_if_an_empty_line_or_a_rule_is_below_it() -> None:
    for below in ("", "|---|---"):
        table = f"|Stop |Fare\n{below}\n|Quay |3\n|Mill |4"
        assert [unit.line for unit in split_units(table)] == ["Stop: Quay; Fare: 3", "Stop: Mill; Fare: 4"]


def test_only_rows_with_a_header_are_spelled_out() -> None:
    table = "| Fares of 2026 |  |\n| Stop | Fare |\n| Quay | 3 |"
    assert spell_out_rows(table) == "| Fares of 2026 |  |\nStop: Quay; Fare: 3."
    for code in ("    || user.is_owner(door) || a\n    || b || c", "cat a \\\n  | grep b | sort \\\n  | grep d | uniq"):
        assert spell_out_rows(code) == code


def test_indented_lines_below_a_list_item_belong_to_it() -> None:
    text = "- The Lantern was built\n  in 1911 by Ada Marlow.\n- It sank.\nAll mourned."
    lines = ["The Lantern was built in 1911 by Ada Marlow.", "It sank.", "All mourned."]
    assert [unit.line for unit in split_units(text)] == lines


def test_rows_after_a_row_that_is_longer_than_a_passage_still_have_the_header() -> None:
    rows = "\n".join(f"| Boat {n} | {1900 + n} |" for n in range(60))
    text = f"| Name | Launched |\n| Tern | {'long ' * 70}ago |\n{rows}\n\n\n| Stop | Fare |\n| Quay | 3 |"
    document = Document("d", "Yard Book", text)
    passages = split_passages(document, 30, lambda piece: len(piece.split()))
    found = [each.text for of_passage in extract_by_rules(document, passages) for each in of_passage]
    assert [line for line in found if "Boat" in line] == [f"Name: Boat {n}; Launched: {1900 + n}" for n in range(60)]
    assert found[-1] == "Stop: Quay; Fare: 3"
    assert [header for each in passages for header in headers_at(text, [each.start])] == [p.header for p in passages]


def test_a_row_that_is_longer_than_a_passage_is_not_cut_before_a_bar() -> None:
    """The rest of the row would be read as a row of its own, beginning in the first column."""
    row = f"| Tern |  | {'long ' * 7}ago |  | 555-1234 |"
    document = Document("d", "Yard Book", f"| Name | Owner | Launched | Mate | Telephone |\n{row}\n| Skua | Ada |")
    passages = split_passages(document, 30, len)
    lines = [unit.line for each in passages for unit in split_units(each.text, each.header)]
    assert "555-1234 |" in lines and lines[-1] == "Name: Skua; Owner: Ada"
    assert not any(line.startswith("Name: ") and "Tern" not in line for line in lines[:-1])
    words = split_passages(document, 5, lambda piece: len(piece.split()))
    assert [each.text for each in words if each.text[0] == "|"] == [
        "| Name | Owner |",
        "| Tern |  | long",
        "| Skua | Ada |",
    ]


def test_a_table_that_spans_several_passages_keeps_its_header() -> None:
    """Every row becomes a proposition with its header, whichever passage it is in; no row is taken for a header."""
    rows = "\n".join(f"| Boat {n} | {1900 + n} |" for n in range(60))
    document = Document(
        "d", "Yard Book", f"The boats.\n\n| Name | Launched |\n|---|---|\n{rows}\n\n{'All are lost. ' * 30}"
    )
    passages = split_passages(document, 60, lambda text: len(text.split()))
    assert len(passages) > 4 and {passage.header for passage in passages} == {(), ("Name", "Launched")}
    assert all(bool(passage.header) == (passage.text[0] == "|") for passage in passages[2:])
    found = [each.text for of_passage in extract_by_rules(document, passages) for each in of_passage]
    assert [f"Name: Boat {n}; Launched: {1900 + n}" for n in range(60)] == found[1:61]
    assert "All are lost" in found[61]

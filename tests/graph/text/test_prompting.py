"""`quote` turns untrusted text, for example from a document, into one line of data for a prompt."""

import unicodedata

from graph.text.prompting import quote

# Unicode's stability policy closes this category: no other character will ever be in it.
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]


def test_every_control_character_of_unicode_becomes_a_space() -> None:
    assert len(CONTROLS) == 65 and {unicodedata.category(control) for control in CONTROLS} == {"Cc"}
    assert {quote(f"a{control}b") for control in CONTROLS} == {"a b"}


def test_other_characters_are_unchanged() -> None:
    assert quote("naïve 東京 — “x” \u200b🙂") == "naïve 東京 — “x” \u200b🙂"

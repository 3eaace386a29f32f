"""Foreign text in prompts."""

import sys
import unicodedata

from graph.text.prompting import quote

CONTROLS = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cc"]


def test_every_control_character_of_unicode_becomes_a_space() -> None:
    assert len(CONTROLS) == 65
    assert {quote(f"a{control}b") for control in CONTROLS} == {"a b"}


def test_other_characters_stay() -> None:
    assert quote("naïve 東京 — “x” \u200b🙂") == "naïve 東京 — “x” \u200b🙂"

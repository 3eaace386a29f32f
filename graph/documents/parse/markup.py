"""HTML to tags and text, in time linear in its length whatever it holds: a search that failed once is not made again.

The standard library's parser and libxml2 look for ends that are not there again and again (1 MB of `<!--` or of `<b></i>` takes them
minutes). Attributes are not taken apart; what has no end is text.
"""

import re
from collections.abc import Iterator
from html import unescape
from typing import Literal, NamedTuple

Kind = Literal["start", "end", "text"]

_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*')?)*+>""")
_OPENS = re.compile(r"<(?:(?P<comment>!--)|(?P<other>[!?]|/[^a-zA-Z])|/?[a-zA-Z])")
_COMMENT_ENDS, _ENDS = re.compile("-->"), re.compile(">")
_RAW = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "title", "textarea")}
"""Elements without elements inside, and how they end. Without an end scripts and styles take the rest of the page along."""
_SCRIPTS = ("script", "style")
_LONG_NUMBER = re.compile(r"&#[0-9]{9,}+;?")


class Token(NamedTuple):
    """A tag by its name in lower case, or some text with its entities resolved; `tag` is the start tag as it stands."""

    kind: Kind
    value: str
    tag: str = ""


def tokens(markup: str) -> Iterator[Token]:
    """What a page consists of.

    >>> [token[:2] for token in tokens('<P class="a>b">1 &lt; 2<br/></p')]
    [('start', 'p'), ('text', '1 < 2'), ('start', 'br'), ('text', '</p')]
    """
    search, place = _Search(markup), 0
    while (found := markup.find("<", place)) >= 0:
        if found > place:
            yield Token("text", _resolved(markup[place:found]))
        place = found
        opens = _OPENS.match(markup, found)
        if opens is None:
            yield Token("text", "<")
            place += 1
        elif opens["comment"]:
            ends = search.find(_COMMENT_ENDS, found + 2)
            place = ends.end() if ends else opens.end()
        elif opens["other"]:
            ends = search.find(_ENDS, found)
            if ends is None:
                break
            place = ends.end()
        elif (tag := _TAG.match(markup, found)) is None:
            break
        else:
            name, place = tag[2].lower(), tag.end()
            if name not in _RAW or tag[1]:
                yield Token("end", name) if tag[1] else Token("start", name, tag[0])
            elif not tag[0].endswith("/>"):
                ends = search.find(_RAW[name], place)
                if ends is not None:
                    yield Token("start", name, tag[0])
                    yield Token("text", _resolved(markup[place : ends.start()]))
                    place = ends.start()
                elif name in _SCRIPTS:
                    return
    if place < len(markup):
        yield Token("text", _resolved(markup[place:]))


class _Search:
    """Searches forward in one text, from places that only grow."""

    def __init__(self, text: str) -> None:
        self._text, self._in_vain = text, set[re.Pattern[str]]()

    def find(self, pattern: re.Pattern[str], place: int) -> re.Match[str] | None:
        """The first match from `place` on, or None."""
        found = None if pattern in self._in_vain else pattern.search(self._text, place)
        if found is None:
            self._in_vain.add(pattern)
        return found


def _resolved(text: str) -> str:
    """Text with its entities; a number that is no character's, however long, becomes U+FFFD."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text

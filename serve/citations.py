"""Citations in the form of each protocol; the citation rule itself is in graph/answer/citations.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from graph.answer.attribution import Citation
from graph.answer.citations import Mark
from graph.types import Excerpt


def citation(number: int, cited: Citation) -> dict[str, Any]:
    """A citation in JSON form: its number, the fields of the excerpt, `attributed` and `quotes`."""
    return {"number": number, **asdict(cited)}


def passage_url(base: str, excerpt: Excerpt) -> str:
    """The URL at which the page at `base` opens an excerpt in its document; a summary opens at its first passage.

    For an excerpt without a document or members the URL is `base`.

    >>> passage_url("http://localhost:8080/", Excerpt("1", "Tarn", "…", "isles/tarn.md", 5, 9))
    'http://localhost:8080/#read/isles%2Ftarn.md/5-9'
    """
    if excerpt.source:
        return f"{base}#read/{quote(excerpt.source, safe='')}/{excerpt.start}-{excerpt.end}"
    return f"{base}#browse/passage/{excerpt.members[0]}" if excerpt.members else base


def origin(statement: str | None) -> dict[str, Any]:
    """Whether a citation is attributed, and if so, the sentence of the answer that it follows; `statement` is None if the model itself cited the passage.

    >>> origin(None), origin("It sank.")
    ({'attributed': False}, {'attributed': True, 'statement': 'It sank.'})
    """
    return {"attributed": False} if statement is None else {"attributed": True, "statement": statement}


def file_citation(mark: Mark, excerpt: Excerpt, base: str, statement: str | None = None) -> dict[str, Any]:
    """A citation as OpenAI's annotation of a response's text: `index` is where its [n] begins; the file is the document.

    Besides OpenAI's fields, `end_index` is where the [n] ends; `title` and `text` are the passage's, and `url` opens it. An attributed
    citation names its `statement`, the sentence of the answer; `index` and `end_index` are both the end of that sentence.
    """
    file = {"file_id": excerpt.source or excerpt.id, "filename": excerpt.source or excerpt.title}
    location = {"index": mark.start, "end_index": mark.end, "url": passage_url(base, excerpt)}
    passage_fields = {"title": excerpt.title or excerpt.source, "text": excerpt.text}
    return {"type": "file_citation", **file, **location, **passage_fields, **origin(statement)}


def url_citation(mark: Mark, excerpt: Excerpt, base: str) -> dict[str, Any]:
    """A citation as OpenAI's annotation of a chat completion's text: `start_index` to `end_index` are the characters of its [n]."""
    location = {"start_index": mark.start, "end_index": mark.end}
    fields = {**location, "title": excerpt.title or excerpt.source, "url": passage_url(base, excerpt)}
    return {"type": "url_citation", "url_citation": fields}


def search_result_location(mark: Mark, excerpt: Excerpt, base: str, statement: str | None = None) -> dict[str, Any]:
    """A citation as Anthropic attaches it to a block of text: the passages are the search results, counted from 0.

    Besides Anthropic's fields, `url` opens the passage, and an attributed citation names its `statement`.

    >>> search_result_location(Mark(1, 5, 8), Excerpt("1", "", "…", "isles/tarn.md", 5, 9), "http://localhost:8080/")["title"]
    'isles/tarn.md'
    """
    location = {"search_result_index": mark.number - 1, "start_block_index": 0, "end_block_index": 1}
    title = excerpt.title or excerpt.source
    source_fields = {"cited_text": excerpt.text, "source": excerpt.source or excerpt.id, "title": title}
    ours = {"url": passage_url(base, excerpt), **origin(statement)}
    return {"type": "search_result_location", **source_fields, **location, **ours}

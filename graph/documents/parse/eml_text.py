"""An e-mail message: its headers, its body, the names of its attachments, and attached messages."""

import codecs
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import default
from email.utils import parsedate_to_datetime

from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.html_text import html_text
from graph.documents.parse.plain import check_count, join_blocks

HEADERS = ("From", "To", "Cc", "Date", "Subject")
TEXTS = ("text/plain", "text/html")
SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""The encodings that browsers use instead of the declared ones, because many texts contain characters that only these have (WHATWG, Encoding)."""


def read(data: bytes, file: str) -> ParsedFile:
    """The subject as title, headers and body as text; `from`, `to` and `date` (ISO 8601) as metadata. Attachments other than messages are named, not read."""
    message = message_from_bytes(data, policy=default)
    check_count(sum(1 for _ in message.walk()), "parts", file)
    addresses = {key: _header(message, key) for key in ("From", "To")}
    metadata = {key.lower(): value for key, value in addresses.items() if value}
    with suppress(ValueError):
        metadata["date"] = parsedate_to_datetime(_header(message, "Date")).isoformat()
    return ParsedFile(_header(message, "Subject"), join_blocks(_blocks(message)), metadata)


def _blocks(message: EmailMessage) -> Iterator[str]:
    yield "\n".join(f"{key}: {value}" for key in HEADERS if (value := _header(message, key)))
    names: list[str] = []
    yield from _texts(message, names)
    if names:
        yield f"Attached: {', '.join(names)}"


def _texts(part: MIMEPart, names: list[str]) -> Iterator[str]:
    """The texts of a part and of attached messages; `names` gets its other attachments. Of alternatives, the first with a text is read."""
    kind = part.get_content_type()
    if kind == "message/rfc822":
        yield from _blocks(part.get_content())
    elif part.get_content_maintype() == "multipart":
        for each in part.iter_parts():
            texts = [text for text in _texts(each, names) if text.strip()]
            yield from texts
            if texts and kind == "multipart/alternative":
                break
    elif kind not in TEXTS or part.is_attachment() or part.get_param("filename", header="content-disposition"):
        names.append(part.get_filename() or kind)
    else:
        yield html_text(_content(part)).text if kind == "text/html" else _content(part)


def _content(part: MIMEPart) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        declared = codecs.lookup(part.get_content_charset("utf-8")).name
        if declared == "ascii":
            with suppress(UnicodeDecodeError):
                return data.decode()
        return data.decode(SUPERSETS.get(declared, declared), "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _header(message: EmailMessage, key: str) -> str:
    return " ".join(str(message.get(key, "")).split())

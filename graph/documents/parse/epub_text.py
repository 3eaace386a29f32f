"""The text of an EPUB: its chapters in the order of its spine (EPUB 3.3 §5.7), each read as an HTML page."""

from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from defusedxml.ElementTree import fromstring

from graph.documents.parse.archive import open_archive, part_of
from graph.documents.parse.formats import ParsedFile
from graph.documents.parse.html_text import html_text
from graph.documents.parse.plain import check_count, decode_text
from graph.errors import UserError

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
PAGE_TYPES = ("application/xhtml+xml", "text/html")


def read(data: bytes, file: str) -> ParsedFile:
    """Title and text; UserError naming `file` if a chapter is encrypted, a part is missing, or there are too many chapters. URLs are not followed."""
    with open_archive(data, file) as archive:
        names = set(archive.namelist())
        container = _root_of(archive, file, names, CONTAINER)
        package_path = next((each.get("full-path", "") for each in _elements(container, "rootfile")), "")
        root = _root_of(archive, file, names, package_path)
        items = {each.get("id"): each for each in _elements(root, "item")}
        spine = [items.get(each.get("idref")) for each in _elements(root, "itemref")]
        chapters = [
            normpath(join(dirname(package_path), unquote(each.get("href", ""))))
            for each in spine
            if each is not None and each.get("media-type") in PAGE_TYPES
        ]
        check_count(len(chapters), "chapters", file)
        encrypted = _encrypted_parts(archive, names)
        for chapter in chapters:
            if chapter in encrypted:
                raise UserError(
                    f"{file}: {chapter} is encrypted (DRM)", "a book without copy protection", "remove the file"
                )
            if chapter not in names:
                raise _missing_part(file, chapter)
        texts = [html_text(decode_text(part_of(archive, chapter), f"{file}: {chapter}")).text for chapter in chapters]
        title = next((each.text for each in _elements(root, "title") if each.text), "")
    return ParsedFile(" ".join(title.split()), "\n\n".join(text for text in texts if text))


def _root_of(archive: ZipFile, file: str, names: set[str], part: str) -> Any:
    """The root element of a part; the parser refuses entities."""
    if part not in names:
        raise _missing_part(file, part)
    return fromstring(part_of(archive, part))


def _encrypted_parts(archive: ZipFile, names: set[str]) -> set[str]:
    """The parts that cannot be read without a key."""
    if ENCRYPTION not in names:
        return set()
    root = fromstring(part_of(archive, ENCRYPTION))
    return {unquote(each.get("URI", "")) for each in _elements(root, "CipherReference")}


def _missing_part(file: str, part: str) -> UserError:
    return UserError(f"{file}: no part {part!r}", "a complete EPUB", "repair or remove the file")


def _elements(root: Any, name: str) -> list[Any]:
    """The elements of this name in any namespace."""
    return [each for each in root.iter() if each.tag.rpartition("}")[2] == name]

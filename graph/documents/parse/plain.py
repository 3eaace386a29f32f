"""Plain text: bytes to text, and the title that a text gives itself."""

from graph.shared.errors import UserError

LONGEST_FIRST_LINE = 120


def decode_text(data: bytes, file: str) -> str:
    """UTF-8 text (a byte-order mark is dropped); UserError naming `file` for other encodings and for binary files."""
    if b"\0" in data:
        raise UserError(
            f"{file}: byte 0x00 at offset {data.index(0):,} (a binary file)", "UTF-8 text", "convert or remove the file"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{file}: byte {data[problem.start]:#04x} at offset {problem.start:,} is not UTF-8",
            "UTF-8 text",
            f"convert it, for example: iconv -f latin1 -t utf-8 {file}",
        ) from None


def title_of(text: str) -> str:
    """A first-line Markdown heading, or a short first line above an empty one; else "".

    >>> title_of("# The Lantern\\nA ferry."), title_of("Tides\\n\\nHigh at noon."), title_of("A ferry.")
    ('The Lantern', 'Tides', '')
    """
    lines = text.lstrip("\n\r").splitlines()
    if not lines:
        return ""
    first = lines[0].strip()
    if first.startswith("#") and first.strip("# "):
        return first.strip("# ")
    stands_alone = len(lines) > 1 and not lines[1].strip()
    return first if stands_alone and len(first) <= LONGEST_FIRST_LINE else ""

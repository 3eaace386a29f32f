"""Hostile HTML and PDF files, made from a seed: deep, broken, endless and bloated ones, and some that are valid.

`python -P benchmarks/hostile_files.py --json` lists the kinds; benchmarks/uploads.py measures the cost of reading these files.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from random import Random

MIB = 1 << 20
Make = Callable[[Random, int], bytes]
WORDS = (
    *("tide", "salt", "mill", "ferry", "quince", "lantern", "harbour", "bridge", "island", "rope", "cheese", "basalt"),
)
SOUP = (
    *("<", ">", "</", "<!", "<!--", "-->", "<?", "&", "&#", "&amp", "&#x", ";", '"', "'", "=", "/", "table", "td", "p"),
    *("title", "script", "<b>", "</b>", "<td>", "</td>", "<table>", "</table>", "<title>", "<script>", "<style>"),
    *("<![CDATA[", "]]>", "<a href='", " word ", "\n", "é"),
)


def hostile_file(number: int, seed: int = 0, largest: int = MIB) -> tuple[str, bytes]:
    """Name and bytes of file `number`, at most `largest`. The kinds take turns; the first file of each kind is made for the size `largest`, later ones
    for a random smaller size. Some kinds, such as bombs, are smaller than the size that they are made for.
    """
    kinds = [
        *((kind, ".html", make) for kind, make in HTML.items()),
        *((kind, ".pdf", make) for kind, make in PDF.items()),
    ]
    kind, suffix, make = kinds[number % len(kinds)]
    rng = Random(f"{seed} {number}")
    size = largest if number < len(kinds) else int(1000 * (largest / 1000) ** rng.random())
    return f"{number:03}-{kind}{suffix}", make(rng, int(0.8 * size))[:largest]


def text(rng: Random, size: int) -> str:
    """Plain words of about `size` characters."""
    return " ".join(rng.choices(WORDS, k=max(1, size // 6)))


def repeat(unit: str) -> Make:
    """A maker of pages: one unit repeated, with text at the end."""
    return lambda rng, size: (unit * (size // len(unit)) + "Deep text.").encode()


def soup(rng: Random, size: int) -> bytes:
    """Pieces of markup in random order."""
    return "".join(rng.choices(SOUP, k=size // 4)).encode()


def corrupt(make: Make) -> Make:
    """A maker that changes random bytes of the files that `make` makes, and sometimes truncates them."""

    def make_corrupted(rng: Random, size: int) -> bytes:
        data = bytearray(make(rng, size))
        for _ in range(max(1, len(data) // rng.choice([100, 1000, 10_000]))):
            data[rng.randrange(len(data))] = rng.choice(b"<>/[]()& \r\n0189azR")
        return bytes(data[: rng.choice([len(data), rng.randrange(1, len(data) + 1)])])

    return make_corrupted


def sound_page(rng: Random, size: int) -> bytes:
    """An ordinary page."""
    parts = ["<!doctype html><html><head><title>Tides &amp; salt</title><style>p{}</style></head><body><h1>Tides</h1>"]
    while sum(map(len, parts)) < size:
        rows = "".join(f"<tr><td>{text(rng, 20)}</td><td>{rng.random():.3f}</td></tr>" for _ in range(5))
        parts.append(f"<div class='a'><p>{text(rng, 400)}<br>{text(rng, 80)}</p><table>{rows}</table></div>")
    return "".join([*parts, "</body></html>"]).encode()


HTML: dict[str, Make] = {
    "sound": sound_page,
    "nested-tables": repeat("<table><tr><td>"),
    "nested-blocks": repeat("<div><ul><li>"),
    "nested-inline": repeat("<b></i>"),
    "line-breaks": repeat("<br>"),
    "comments-without-end": repeat("<!--"),
    "tags-without-end": repeat("<a href='x"),
    "declarations": repeat("<!["),
    "angle-brackets": repeat("<"),
    "scripts-without-end": repeat("<script></scrip"),
    "templates": repeat("<template></noscript>"),
    "titles": repeat("<title>"),
    "entities": repeat("&NotEqualTilde;"),
    "ampersands": repeat("&#x"),
    "giant-number": lambda rng, size: b"<p>&#" + b"1" * size + b";",
    "giant-attribute": lambda rng, size: b"<p title='" + b"y" * size + b"'>Deep text.",
    "many-attributes": lambda rng, size: b"<p " + b"a=b " * (size // 4) + b">Deep text.",
    "giant-name": lambda rng, size: b"<" + b"a" * size + b">Deep text.",
    "rows-without-table": repeat("<td>x<tr>"),
    "soup": soup,
    "changed": corrupt(sound_page),
}


def pdf(objects: Sequence[bytes], table: bool = True) -> bytes:
    """A PDF of these objects, numbered from 1; without `table` it has no cross-reference table, so that readers have to search for the objects."""
    out, offsets = [b"%PDF-1.7\n"], []
    offset = len(out[0])
    for number, body in enumerate(objects, start=1):
        offsets.append(offset)
        out.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        offset += len(out[-1])
    if table:
        out += [
            b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1),
            *(b"%010d 00000 n \n" % start for start in offsets),
        ]
    ending = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    out.append(ending % (len(objects) + 1, offset if table else 7))
    return b"".join(out)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream object; `entries` are added to its dictionary."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def pages(contents: Sequence[bytes], resources: bytes = b"", more: Sequence[bytes] = (), fonts: bytes = b"") -> bytes:
    """A PDF of one page for each content stream; `more` objects are numbered from 4 + 2 × the number of pages."""
    count = len(contents)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        named = b"/Resources << /Font << /F1 3 0 R %s >> %s >>" % (fonts, resources)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R %s >>" % (5 + 2 * number, named)
        )
        objects.append(content)
    return pdf([*objects, *more])


def lines_of_text(rng: Random, size: int) -> bytes:
    """A content stream of lines of words."""
    shown = (b"(%s) Tj T*" % text(rng, 60).encode() for _ in range(max(1, size // 70)))
    return b"BT /F1 12 Tf 14 TL 72 720 Td " + b"\n".join(shown) + b" ET"


def sound_pdf(rng: Random, size: int) -> bytes:
    """An ordinary PDF: pages of text, compressed."""
    contents = [zlib.compress(lines_of_text(rng, 3000)) for _ in range(max(1, min(40, size // 1500)))]
    return pages([stream(content, b"/Filter /FlateDecode") for content in contents])


def one_page(content: Callable[[Random, int], bytes]) -> Make:
    """A maker of PDFs of one page whose content stream is not compressed."""
    return lambda rng, size: pages([stream(content(rng, size))])


def bomb(content: bytes, times: int) -> Make:
    """A maker of PDFs of one page whose compressed stream repeats `content`, about 0.8 × `times` MB of it in the largest file."""

    def make(rng: Random, size: int) -> bytes:
        packer = zlib.compressobj(9)
        megabyte = content * (MIB // len(content))
        packed = b"".join([*(packer.compress(megabyte) for _ in range(1 + times * size // MIB)), packer.flush()])
        return pages([stream(packed, b"/Filter /FlateDecode")])

    return make


def thrice_packed(rng: Random, size: int) -> bytes:
    """A stream that was compressed three times."""
    packed = b" " * (75 * size)
    for _ in range(3):
        packed = zlib.compress(packed, 9)
    return pages([stream(packed, b"/Filter [/FlateDecode /FlateDecode /FlateDecode]")])


def circular_pages(rng: Random, size: int) -> bytes:
    """A page tree that contains itself, many times."""
    kids = b"2 0 R 3 0 R " * (size // 12)
    return pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [%s] /Count 9 >>" % kids,
            b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Parent 3 0 R /Count 9 >>",
        ]
    )


def deep_pages(rng: Random, size: int) -> bytes:
    """A page tree with one branch, as deep as the size allows."""
    depth = max(2, size // 90)
    inner = [b"<< /Type /Pages /Kids [%d 0 R] /Parent %d 0 R /Count 1 >>" % (n + 3, n + 1) for n in range(depth)]
    return pdf([b"<< /Type /Catalog /Pages 2 0 R >>", *inner, b"<< /Type /Page /Parent %d 0 R >>" % (depth + 1)])


def shared_kids(rng: Random, size: int) -> bytes:
    """A page tree in which each level contains the next one ten times: 10 ** 9 pages."""
    inner = [b"<< /Type /Pages /Kids [%s] /Count 10 >>" % (b"%d 0 R " % (n + 3) * 10) for n in range(9)]
    return pdf([b"<< /Type /Catalog /Pages 2 0 R >>", *inner, b"<< /Type /Page /MediaBox [0 0 9 9] >>"])


def forms(depth: int, width: int) -> Make:
    """A maker of PDFs with form XObjects, each of which draws the next one `width` times; the last one draws the first."""

    def make(rng: Random, size: int) -> bytes:
        entries = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>"
        objects = [stream(b"/X Do " * width, entries % (6 + (n + 1) % depth)) for n in range(depth)]
        return pages([stream(b"/X Do " * width)], b"/XObject << /X 6 0 R >>", objects)

    return make


def wide_cmap(rng: Random, size: int) -> bytes:
    """A font whose map to Unicode consists of ranges over all codes."""
    ranges = b"<0000> <ffff> <0000>\n" * (size // 21)
    cmap = stream(b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfrange\n" + ranges + b"endbfrange")
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 7 0 R >>"
    content = stream(b"BT /F2 12 Tf 72 720 Td <00410042> Tj ET")
    return pages([content], more=[font, cmap], fonts=b"/F2 6 0 R")


def many_objects(rng: Random, size: int) -> bytes:
    """Objects without a cross-reference table."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"]
    return pdf([*objects, *([b"1"] * (size // 22))], table=False)


def circular_tables(rng: Random, size: int) -> bytes:
    """Cross-reference tables that name each other as the previous one."""
    head = b"%PDF-1.7\n1 0 obj << /Type /Catalog /Pages 1 0 R >> endobj\n"
    table = b"xref\n0 1\n0000000000 65535 f \ntrailer << /Size 2 /Root 1 0 R /Prev %d >>\n"
    length = len(table % 10**9)
    count = max(2, size // length)
    offsets = [len(head) + n * length for n in range(count)]
    tables = b"".join((table % offsets[(n + 1) % count]).ljust(length) for n in range(count))
    return head + tables + b"startxref\n%d\n%%%%EOF\n" % offsets[0]


def long_table(rng: Random, size: int) -> bytes:
    """A cross-reference table that claims two billion rows."""
    return (
        b"%PDF-1.7\n1 0 obj << /Type /Catalog >> endobj\nxref\n0 2000000000\n"
        + b"0000000000 65535 f \n" * (size // 20)
        + b"trailer << /Size 2000000000 /Root 1 0 R >>\nstartxref\n47\n%%EOF\n"
    )


def circular_streams(rng: Random, size: int) -> bytes:
    """An object stream that contains itself, and a stream whose length is given by the stream itself."""
    entries = b"/Type /ObjStm /N 100000 /First 10 /Extends 3 0 R"
    return pages(
        [b"<< /Length 5 0 R >>\nstream\n%s\nendstream" % (b"x" * size)], more=[stream(b"6 0 6 0 " * 100, entries)]
    )


PDF: dict[str, Make] = {
    "sound": sound_pdf,
    "much-text": one_page(lines_of_text),
    "bomb-of-spaces": bomb(b" ", 900),
    "bomb-of-text": bomb(b"BT (salt) Tj ET\n", 70),
    "bomb-of-brackets": bomb(b"[", 60),
    "bomb-of-numbers": bomb(b"1 ", 70),
    "packed-thrice": thrice_packed,
    "circular-pages": circular_pages,
    "deep-pages": deep_pages,
    "shared-kids": shared_kids,
    "forms-in-a-circle": forms(2, 10),
    "forms-of-forms": forms(12, 10),
    "wide-cmap": wide_cmap,
    "objects-without-table": many_objects,
    "circular-tables": circular_tables,
    "long-table": long_table,
    "circular-streams": circular_streams,
    "deep-array": lambda rng, size: pdf([b"<< /Pages 2 0 R >>", b"[" * size]),
    "deep-dictionary": lambda rng, size: pdf([b"<< /Pages 2 0 R >>", b"<</Kids" * (size // 7)]),
    "deep-states": one_page(lambda rng, size: b"q " * (size // 2)),
    "inline-image": one_page(lambda rng, size: b"BI /W 9 /H 9 ID " + b"E " * (size // 2)),
    "strings-without-end": one_page(lambda rng, size: b"BT (" * (size // 4)),
    "length-too-long": lambda rng, size: pages(
        [b"<< /Length 2000000000 >>\nstream\n" + lines_of_text(rng, size) + b"\nendstream"]
    ),
    "broken-stream": lambda rng, size: pages([stream(rng.randbytes(size), b"/Filter /FlateDecode")]),
    "broken-85": lambda rng, size: pages([stream(b"z" * size, b"/Filter [/ASCII85Decode /LZWDecode]")]),
    "run-lengths": lambda rng, size: pages([stream(b"\x81 " * (size // 2), b"/Filter /RunLengthDecode")]),
    "comments": lambda rng, size: b"%PDF-1.7\n" + b"%\r" * (size // 2),
    "nothing": lambda rng, size: b"%PDF-1.7\n" + b" " * size + b"startxref\n0\n%%EOF",
    "changed": corrupt(sound_pdf),
}


if __name__ == "__main__":
    print(json.dumps({"name": "hostile_files", "figures": {"html": list(HTML), "pdf": list(PDF)}, "checks": []}))

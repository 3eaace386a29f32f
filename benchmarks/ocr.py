"""The cost of reading a scanned page with tesseract, and how many of its words are recovered.

Run: python -P benchmarks/ocr.py [--pages 10] [--json]. Pages are rendered from the documents in examples/: clean print, 420 words each, at
200 dots per inch. A word is recovered if it is read on its page exactly as printed.
"""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from PIL import Image, ImageDraw, ImageFont

from benchmarks.report import new_parser, print_report
from graph.documents.parse.formats import Limits
from graph.documents.parse.ocr import Ocr
from graph.documents.sandbox import ParseWorker

WORDS, LINE_CHARS, DPI = 420, 88, 200
A4 = (1654, 2339)


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--pages", type=int, default=10)
    options = parser.parse_args()
    if shutil.which("tesseract") is None or shutil.which("pdftoppm") is None:
        return print_report("ocr", {"not measured": "tesseract or pdftoppm is not installed"}, [], options.json)
    return print_report("ocr", measure(options.pages), [], options.json)


def measure(count: int) -> dict[str, float | str]:
    """Processor seconds per page, peak memory, and the share of the distinct words of a page that are recovered."""
    texts = (file.read_text(encoding="utf-8") for file in sorted((ROOT / "examples" / "documents").glob("*.md")))
    words = " ".join(texts).replace("#", "").split()
    pages = [words[start : start + WORDS] for start in range(0, count * WORDS, WORDS)]
    page_s, recovered, expected, peak_mb = [], 0, 0, 0.0
    with ParseWorker(Limits(ocr=Ocr())) as worker:
        for page in pages:
            words_read = set(worker.parse(scan(page), ".pdf", "page.pdf").text.split())
            page_s.append(worker.last.cpu_s)
            peak_mb = max(peak_mb, worker.last.peak_mb)
            recovered, expected = recovered + len(words_read & set(page)), expected + len(set(page))
    return {
        "pages": count,
        "processor s per page": median(page_s),
        "longest page, processor s": max(page_s),
        "peak memory of one process, MiB": peak_mb,
        "share of words recovered": recovered / expected,
    }


def scan(words: Sequence[str]) -> bytes:
    """A PDF of one page that is an image of the words."""
    image = Image.new("L", A4, 255)
    text = "\n".join(textwrap.wrap(" ".join(words), LINE_CHARS))
    font = ImageFont.load_default(size=28)
    ImageDraw.Draw(image).multiline_text((150, 150), text, fill=0, font=font, spacing=8)
    out = BytesIO()
    image.save(out, "PDF", resolution=DPI)
    return out.getvalue()


if __name__ == "__main__":
    raise SystemExit(main())

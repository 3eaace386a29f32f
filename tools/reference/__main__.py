"""PYTHONPATH=. python -P -m tools.reference: write all generated pages to docs/."""

from tools.reference.all_pages import DOCS, all_pages

for file, text in all_pages().items():
    (DOCS / file).parent.mkdir(parents=True, exist_ok=True)
    (DOCS / file).write_text(text, encoding="utf-8")
    print(f"docs/{file}")

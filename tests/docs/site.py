"""The site as `make docs` builds it, in a separate folder, and the contents of its pages."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from tests.places import ROOT

LOADED_ATTRIBUTES = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
    "use": "href",
}
"""By tag, the attribute with the URL of a resource that a browser fetches automatically. A `link` element is fetched only if its `rel` is in LOADED_RELS."""
LOADED_RELS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "prefetch", "manifest"}


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a copy of the documentation in `folder`, in strict mode; the site is written to build/site inside it."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return run(folder)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Zensical in `folder`."""
    command = [sys.executable, "-P", "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@dataclass
class Page(HTMLParser):
    """A built page: its anchors, the targets of its links, and the resources that it loads."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element's anchors, its link, and the resource that it loads."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if LOADED_ATTRIBUTES.get(tag) in values:
            self.loaded.append(values[LOADED_ATTRIBUTES[tag]])
        if tag == "link" and LOADED_RELS & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))

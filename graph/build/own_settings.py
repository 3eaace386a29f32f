"""The settings that an index keeps: laid under those of a run, and compared with them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from graph.build.stores import kept_settings
from graph.encode.encoder import check_encoder
from graph.shared.config import parse_settings, read_yaml, set_value
from graph.shared.errors import UserError
from graph.shared.types import Encoder, Prompts
from graph.store.settings import CHANGEABLE, IndexSettings
from graph.store.store import Store


def settings_for(
    folder: Path,
    file: Path | None,
    overrides: Sequence[str],
    flags: Mapping[str, object] | None = None,
    where: str = "--set",
) -> IndexSettings:
    """Settings for a run on `folder`: its own if it is an index already, with `file`, `overrides` and `flags` laid over them.

    Errors name `file`, or else `where`.
    """
    known = kept_settings(folder)
    values = known.model_dump() if known is not None else {}
    given = read_yaml(file) if file is not None else {}
    for override in overrides:
        set_value(given, override)
    return parse_settings(IndexSettings, {**values, **given, **(flags or {})}, str(file or where))


def reading_settings(
    extractor_model: str | None, import_file: Path | None, summary_model: str | None
) -> dict[str, object]:
    """The settings that a model to read with, a file of readings and a model for summaries stand for."""
    if extractor_model is not None and import_file is not None:
        raise UserError("--extractor-model and --import", "one of the two", "leave one out")
    summaries = {} if summary_model is None else {"summary_model": summary_model}
    if extractor_model is not None:
        return {"extractor": "llm", "extractor_model": extractor_model, "import_file": "", **summaries}
    if import_file is not None:
        return {"extractor": "import", "import_file": str(import_file.resolve()), "extractor_model": "", **summaries}
    return dict(summaries)


def keep_settings(store: Store, settings: IndexSettings) -> None:
    """Keep the settings of a run in the index; UserError when one that must not change differs from its own."""
    check_settings(store, settings)
    store.set_meta("settings", settings.model_dump())


def check_own_encoder(store: Store, encoder: Encoder, folder: Path) -> None:
    """UserError when `encoder` is not the one that the vectors of an index came from, or has other prompts."""
    prompts = store.get_meta("prompts")
    check_encoder(
        store.get_meta("encoder"), encoder, folder, None if prompts is None else Prompts(**json.loads(prompts))
    )


def check_settings(store: Store, settings: IndexSettings) -> None:
    """UserError naming the first setting that differs from the index's own and must not."""
    kept = store.get_meta("settings")
    known = IndexSettings.model_construct(**json.loads(kept)).model_dump() if kept is not None else {}
    for key, value in settings.model_dump(exclude=set(CHANGEABLE)).items() if known else ():
        if known[key] != value:
            raise UserError(
                f"{key} = {value!r}, but this index was made with {key} = {known[key]!r}",
                "the settings it was made with",
                "leave the setting out, or index into a new folder",
            )

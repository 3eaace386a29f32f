"""Settings of an index: chosen when it is created, stored in it, and fixed for later runs except those in CHANGEABLE.

An index whose rows are in PostgreSQL has database.json in its folder: the parameters, without the password, for connecting to the database.
Arrays, segments and the manifest stay in the folder, where readers on every machine find them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from graph.config import Settings
from graph.errors import UserError
from graph.shared.jsonl import write_json

VectorType = Literal["float32", "float16"]


class IndexSettings(Settings):
    """Settings that determine how documents become an index."""

    encoder: str = Field("minilm", description="sentence encoder: 'minilm', 'e5-small', a folder, or a hub name")
    max_passage_tokens: int = Field(200, ge=16, le=8192, description="longest passage, in the encoder's tokens")
    max_chunk_tokens: int = Field(
        1000, ge=16, description="size of a large chunk, which gets its own summary (GraphMPA §3.1)"
    )
    max_summary_tokens: int = Field(120, ge=8, description="longest summary of a chunk or community")
    summary_model: str = Field(
        "", description="SPEC of the language model that writes summaries; by default, sentences are extracted"
    )
    neighbours: int = Field(10, ge=1, le=1000, description="k: nearest neighbours of a node in the similarity graph")
    min_similarity: float = Field(
        0.5, ge=-1, le=1, description="τ: edges of the similarity graph have at least this cosine"
    )
    layers: int = Field(
        2, ge=1, le=8, description="L: maximum number of layers of the similarity graph, layer 0 included"
    )
    communities: Literal["leidenalg", "igraph"] = Field("leidenalg", description="implementation of Leiden")
    layers_on_edit: Literal["now", "later"] = Field(
        "later",
        description="carry communities and their summaries over edits until a tenth of the passages has changed "
        "or the index is compacted (later), or recompute them at each edit (now)",
    )
    merge_factor: int = Field(
        8,
        ge=2,
        le=100,
        description="segments of similar size that an edit merges into one: low values speed up queries, high ones edits",
    )
    vectors: VectorType = Field(
        "float32",
        description="type of stored vectors: float16 halves disk space and memory, and rounds to three digits",
    )
    ann_rows: int = Field(
        100_000,
        ge=1,
        description="use approximate search (ANN) from this many rows on (passages, propositions or entities)",
    )
    synonym_neighbours: int = Field(
        10, ge=1, le=1000, description="nearest entities considered as synonyms of an entity"
    )
    min_synonym_similarity: float = Field(
        0.9, ge=0, le=1, description="lowest cosine of two entities that count as synonyms"
    )
    seed: int = Field(0, ge=0, description="seed of Leiden")
    extractor: Literal["rules", "llm", "import"] = Field(
        "rules", description="what extracts propositions from passages"
    )
    extractor_model: str = Field("", description="SPEC of the language model for extractor llm")
    extractor_examples: str = Field(
        "", description="text file of few-shot examples for extractor llm, instead of the built-in ones"
    )
    max_reply_tokens: int = Field(
        2048, ge=64, description="longest reply of extractor_model for one passage, in tokens"
    )
    infer_domain: bool = Field(
        True,
        description="whether extractor_model infers entity types and topics once, from five passages of the first run",
    )
    import_file: str = Field("", description="external extraction (.jsonl), for extractor import")
    max_failed_share: float = Field(
        0.0, ge=0, le=1, description="share of passages in quarantine above which a run ends with exit status 1"
    )

    @field_validator("extractor_model", "import_file")
    @classmethod
    def _fits_extractor(cls, value: str, info: ValidationInfo) -> str:
        """Check a value that one extractor requires and no other accepts."""
        extractor = "llm" if info.field_name == "extractor_model" else "import"
        chosen = info.data.get("extractor")
        if chosen == extractor and not value:
            raise ValueError(f"extractor = {extractor} needs a value here")
        if chosen != extractor and value:
            raise ValueError(f"only extractor = {extractor} uses this setting, but extractor is {chosen}")
        return value


CHANGEABLE = {
    *("encoder", "extractor_model", "summary_model", "extractor_examples", "max_reply_tokens", "import_file"),
    *("max_failed_share", "layers_on_edit", "merge_factor", "ann_rows"),
}
"""Settings that a later run may change. graph/build/read_passages.py rejects a different extractor model or prompt once passages have been read, and
graph/build/stores.py an encoder with another fingerprint."""


DATABASE_FILE = "database.json"
KEY = "postgresql"


def has_database(folder: Path) -> bool:
    """Whether the rows of the index in a folder are in a database."""
    return (folder / DATABASE_FILE).is_file()


def read_database(folder: Path) -> dict[str, str]:
    """The connection parameters, under libpq's names; UserError if they cannot be read."""
    file = folder / DATABASE_FILE
    try:
        parameters = json.loads(file.read_text(encoding="utf-8"))[KEY]
        return {str(name): str(value) for name, value in parameters.items() if value is not None}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        expected = f'{{"{KEY}": {{"host": "…", "dbname": "…", "user": "…"}}}}'
        remedy = "restore the file from a backup, or write these parameters into it"
        raise UserError(f"{file}: cannot be read ({problem!r})", expected, remedy) from None


def write_database(folder: Path, parameters: Mapping[str, str]) -> None:
    """Write the connection parameters of the index in a folder."""
    write_json(folder / DATABASE_FILE, {KEY: dict(parameters)})

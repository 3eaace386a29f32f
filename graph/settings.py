"""Settings of an index: chosen when it is made, kept in it, and the same for every later run on it."""

from typing import Literal

from pydantic import Field

from graph.config import Settings


class IndexSettings(Settings):
    """How documents become an index."""

    encoder: str = Field("minilm", description="sentence encoder: 'minilm', a folder, or a hub name")
    max_passage_tokens: int = Field(200, ge=16, le=8192, description="longest passage, in the encoder's tokens")
    max_chunk_tokens: int = Field(1000, ge=16, description="large chunk that gets a summary of its own (GraphMPA §3.1)")
    max_summary_tokens: int = Field(120, ge=8, description="longest summary of a chunk or community")
    neighbours: int = Field(10, ge=1, le=1000, description="k of the similarity graph")
    min_similarity: float = Field(
        0.5, ge=-1, le=1, description="τ: edges of the similarity graph have at least this cosine"
    )
    layers: int = Field(2, ge=1, le=8, description="L: layers of the similarity graph, the chunks' own included")
    communities: Literal["leidenalg", "igraph"] = Field("leidenalg", description="implementation of Leiden")
    synonym_neighbours: int = Field(10, ge=1, le=1000, description="nearest names considered as synonyms of a name")
    min_synonym_similarity: float = Field(0.9, ge=0, le=1, description="cosine from which two names are synonyms")
    seed: int = Field(0, ge=0, description="seed of Leiden")

"""What a query may set."""

from typing import Literal

from pydantic import Field

from graph.config import Settings

Mode = Literal["dense", "naive", "hierarchy", "walk", "paths", "local"]


class RetrieveSettings(Settings):
    """How evidence is looked for."""

    mode: Mode = Field("dense", description="strategy")
    top_k: int = Field(
        5, ge=1, le=10_000, description="items to return: passages, propositions or nodes, as the mode ranks them"
    )

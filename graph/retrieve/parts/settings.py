"""What a query may set."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator
from pydantic_core import PydanticKnownError

from graph.index.filters import Condition, parse_condition
from graph.shared.config import Settings
from graph.shared.errors import UserError
from graph.shared.modes import DEFAULT_MODE, Mode
from graph.walks.random_walk import MOST_DAMPING

Selector = Literal["threshold", "llm"]
"""The selectors that come with the program; any other is the folder or the hub name (with a slash) of a trained one."""


class SuggestSettings(Settings):
    """The walk by which `local` and `global` suggest propositions (ToPG Eq. 3–8). The mode `hops` is another one."""

    damping: float = Field(
        default=0.85,
        ge=0,
        le=MOST_DAMPING,
        description="probability of walking on; else it starts from a seed again",
    )
    structure_weight: float = Field(
        default=0.5, ge=0, le=1, description="λ: weight of the graph alone, 1 − λ of what is near to the question"
    )


class RetrieveSettings(Settings):
    """How evidence is looked for."""

    mode: Mode = Field(DEFAULT_MODE, description="strategy")
    top_k: int = Field(
        5, ge=1, le=10_000, description="items to return: passages, propositions or nodes, as the mode ranks them"
    )
    unit: Literal["passages", "propositions"] = Field(
        "passages", description="what statements and topics return: passages, or the propositions themselves"
    )
    where: tuple[str, ...] = Field((), description="conditions on documents, such as year>=1990 or source=reports/*")
    selector: str = Field(
        "threshold",
        description="what chooses among propositions in local and global: threshold, llm, or a trained one's folder; one of size hop ranks in hops",
    )
    reranker: str = Field("", description="cross-encoder that orders what the mode found: a folder or a hub name")
    router: str = Field("", description='what chooses the mode of auto: a trained router\'s folder; "" for a rule')
    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="layers that hierarchy returns nodes of: 0 passages and chunks' summaries, 1 …; none for all"
    )
    suggestions: SuggestSettings = Field(
        SuggestSettings(), description="walk of local, unless a trained selector chooses there alone, and of global"
    )
    abstain: float | None = Field(
        None,
        ge=0,
        le=1,
        description="probability that the documents hold nothing on a question from which it is answered so, without a model; None for never",
    )
    max_context_tokens: int | None = Field(
        None, ge=1, description="longest context of an answer, in tokens of the model in use; None for no limit"
    )

    @field_validator("where")
    @classmethod
    def _readable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for condition in value:
                parse_condition(condition)
        except UserError as problem:
            raise ValueError(str(problem)) from None
        return value

    @field_validator("selector")
    @classmethod
    def _known(cls, value: str) -> str:
        if value in get_args(Selector) or "/" in value or (value and Path(value).is_dir()):
            return value
        expected = "'threshold', 'llm' or the folder or hub name of a trained selector"
        raise PydanticKnownError("literal_error", {"expected": expected})

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of `where`, read."""
        return tuple(parse_condition(condition) for condition in self.where)

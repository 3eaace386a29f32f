"""`auto`: which mode a question is for, by a trained router, or by a rule of thumb that can be read in a minute.

The rule: a question about the whole collection says so ("what themes recur", "overall", "summarise") and calls no document by
name; all others are for `hops`. Neither asks a model: what a search costs must not hang on a word of the question.
"""

from dataclasses import replace

from graph.index.index import Index
from graph.retrieve.learned.query_features import query_features
from graph.retrieve.learned.router import Route, check_same_encoder, find_route
from graph.retrieve.learned.router_file import open_router
from graph.retrieve.parts.broad import broad_sign
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.strategies import DIRECT_STRATEGIES
from graph.shared.modes import Mode
from graph.shared.types import Evidence


def retrieve_auto(index: Index, query: Query, settings: RetrieveSettings) -> Evidence:
    """What the mode for this question finds; the trace says which one, and why. UserError for a router of another encoder."""
    route = learned_route(index, query, settings.router) if settings.router else rule_of_thumb(index, query)
    asked = query if route.asks_model else replace(query, model=None)
    evidence = DIRECT_STRATEGIES[route.mode](index, asked, settings)
    return replace(evidence, trace=replace(evidence.trace, steps=(route.why, *evidence.trace.steps)))


def learned_route(index: Index, query: Query, spec: str) -> Route:
    """The mode that the router in the folder or hub name `spec` chooses. Its modes get the model only if they were measured with one."""
    router = open_router(spec)
    check_same_encoder(router, index)
    return find_route(router, query_features(index, query), query.model is not None)


def rule_of_thumb(index: Index, query: Query) -> Route:
    """The mode that the question's words speak for."""
    sign = broad_sign(index, query.text)
    mode = mode_by_rule(bool(sign))
    why = f"“{sign}” asks about the whole" if sign else "the question asks for something specific"
    return Route(mode, False, f"{mode}, because {why}")


def mode_by_rule(broad: bool) -> Mode:
    """`hierarchy` for broad questions, `hops` for all others."""
    return "hierarchy" if broad else "hops"

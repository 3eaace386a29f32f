"""Every mode that looks for itself, by name; `auto`, which chooses one of them, is added in graph/retrieve/__init__.py."""

from collections.abc import Callable, Mapping

from graph.index import Index
from graph.retrieve.dense import retrieve_dense
from graph.retrieve.global_mode import retrieve_global
from graph.retrieve.hierarchy import retrieve_hierarchy
from graph.retrieve.hybrid import retrieve_hybrid
from graph.retrieve.lexical import retrieve_lexical
from graph.retrieve.local import retrieve_local
from graph.retrieve.naive import retrieve_naive
from graph.retrieve.paths import retrieve_paths
from graph.retrieve.plan import retrieve_plan
from graph.retrieve.query import Query
from graph.retrieve.settings import RetrieveSettings
from graph.retrieve.statements import retrieve_statements
from graph.retrieve.topics import retrieve_topics
from graph.retrieve.walk import retrieve_walk
from graph.types import Evidence, Mode

Strategy = Callable[[Index, Query, RetrieveSettings], Evidence]

DIRECT_STRATEGIES: Mapping[Mode, Strategy] = {
    "dense": retrieve_dense,
    "lexical": retrieve_lexical,
    "hybrid": retrieve_hybrid,
    "naive": retrieve_naive,
    "hierarchy": retrieve_hierarchy,
    "walk": retrieve_walk,
    "paths": retrieve_paths,
    "local": retrieve_local,
    "global": retrieve_global,
    "statements": retrieve_statements,
    "topics": retrieve_topics,
    "plan": retrieve_plan,
}

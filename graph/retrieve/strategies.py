"""Every mode that looks for itself, by name; `auto`, which chooses one of them, is added in graph/retrieve/__init__.py."""

from collections.abc import Callable, Mapping

from graph.index.index import Index
from graph.retrieve.modes.dense import retrieve_dense
from graph.retrieve.modes.global_mode import retrieve_global
from graph.retrieve.modes.hierarchy import retrieve_hierarchy
from graph.retrieve.modes.hops import retrieve_hops
from graph.retrieve.modes.hybrid import retrieve_hybrid
from graph.retrieve.modes.lexical import retrieve_lexical
from graph.retrieve.modes.local import retrieve_local
from graph.retrieve.modes.naive import retrieve_naive
from graph.retrieve.modes.paths import retrieve_paths
from graph.retrieve.modes.statements import retrieve_statements
from graph.retrieve.modes.topics import retrieve_topics
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.settings import RetrieveSettings
from graph.retrieve.plan.mode import retrieve_plan
from graph.shared.modes import Mode
from graph.shared.types import Evidence

Strategy = Callable[[Index, Query, RetrieveSettings], Evidence]

DIRECT_STRATEGIES: Mapping[Mode, Strategy] = {
    "dense": retrieve_dense,
    "lexical": retrieve_lexical,
    "hybrid": retrieve_hybrid,
    "naive": retrieve_naive,
    "hierarchy": retrieve_hierarchy,
    "hops": retrieve_hops,
    "paths": retrieve_paths,
    "local": retrieve_local,
    "global": retrieve_global,
    "statements": retrieve_statements,
    "topics": retrieve_topics,
    "plan": retrieve_plan,
}

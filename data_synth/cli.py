"""The commands of data synthesis: `modegraph synth …` makes training data, `modegraph data …` imports and checks it."""

from typing import TYPE_CHECKING

import typer

from data_synth.claims.cli import register as register_claims
from data_synth.dataset.cli import register as register_data
from data_synth.preferences.cli import register as register_preferences
from data_synth.questions.cli import register as register_questions
from data_synth.reading.cli import register as register_reading
from data_synth.relevance.cli import register as register_relevance
from data_synth.responses.cli import register as register_responses
from data_synth.route.cli import register as register_route
from graph.shared.cli_app import DATA, Group

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register(app: typer.Typer, open_model: "OpenModel") -> None:
    """Add `synth` and `data` and their sub-commands to the command line."""
    synth = typer.Typer(help="Make training data from an index and questions.", no_args_is_help=True, cls=Group)
    data = typer.Typer(help="Check training data, and import published sets.", no_args_is_help=True, cls=Group)
    app.add_typer(synth, name="synth", rich_help_panel=DATA)
    app.add_typer(data, name="data", rich_help_panel=DATA)
    register_preferences(synth, open_model)
    register_responses(synth, open_model)
    register_questions(synth, open_model)
    register_reading(synth)
    register_relevance(synth, open_model)
    register_route(synth, open_model)
    register_claims(synth)
    register_data(data)

"""All forms, and which one a file's rows are of: by the columns that only it has."""

from collections.abc import Mapping
from typing import Any

from data_synth.claims.types import FORM as CLAIMS
from data_synth.forms import Form
from data_synth.preferences.preference_form import PREFERENCES
from data_synth.questions.types import FORM as QUESTIONS
from data_synth.reading.form import FORM as READING
from data_synth.relevance.types import FORM as RELEVANCE
from data_synth.responses.response_form import RESPONSES
from data_synth.route.types import FORM as ROUTE
from graph.shared.errors import UserError

FORMS: dict[str, Form[Any]] = {
    form.name: form for form in (PREFERENCES, RESPONSES, QUESTIONS, READING, RELEVANCE, ROUTE, CLAIMS)
}
TELLING: dict[str, Form[Any]] = {
    "chosen": PREFERENCES,
    "completion": READING,
    "responses": RESPONSES,
    "bridges": QUESTIONS,
    "proposition_id": RELEVANCE,
    "best_mode": ROUTE,
    "claim": CLAIMS,
}


def form_of(row: Mapping[str, Any], where: str) -> Form[Any]:
    """The form of a row; UserError naming the columns when it is of none."""
    for column, form in TELLING.items():
        if column in row:
            return form
    raise UserError(
        f"{where}: columns {', '.join(map(repr, row)) or 'none'}",
        f"one of {', '.join(map(repr, TELLING))}, which tell what kind of data it is",
        "give a file that `modegraph synth` or `modegraph data import` made",
    )

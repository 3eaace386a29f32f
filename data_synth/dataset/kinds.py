"""All forms, and which one a file's rows are of: by the columns that only it has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from data_synth.claims.types import FORM as CLAIMS
from data_synth.forms import Form
from data_synth.preferences.preference_form import PREFERENCES
from data_synth.questions.types import FORM as QUESTIONS
from data_synth.reading.form import FORM as READING
from data_synth.relevance.types import FORM as RELEVANCE
from data_synth.responses.response_form import RESPONSES
from data_synth.route.types import FORM as ROUTE
from graph.documents.questions import question_problems
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


@dataclass(frozen=True)
class Checks:
    """A kind of row and what is wrong with one, in words; raises what `Form.from_json` raises."""

    kind: str
    problems: Callable[[Mapping[str, Any]], list[str]]


def form_of(row: Mapping[str, Any], where: str) -> Form[Any]:
    """The form of a row; UserError naming the columns when it is of none."""
    for column, form in TELLING.items():
        if column in row:
            return form
    raise UserError(
        f"{where}: columns {', '.join(map(repr, row)) or 'none'}",
        f"one of {', '.join(map(repr, TELLING))}, which tell what kind of data it is, or 'question' and 'answers'",
        "give a file that `modegraph synth` or `modegraph data import` made, or questions",
    )


def checks_of(row: Mapping[str, Any], where: str) -> Checks:
    """How rows like this one are checked: by their form, or as questions with their answers, which have none; UserError as `form_of`."""
    if "question" in row and not any(column in row for column in TELLING):
        return Checks("questions", question_problems)
    form = form_of(row, where)
    return Checks(form.name, lambda values: list(form.problems(form.from_json(values))))

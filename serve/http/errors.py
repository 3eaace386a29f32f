"""What goes wrong, as an OpenAI client expects to read it: {"error": {"message", "type", "param", "code"}} and a status.

No message repeats a header, a key or an address of the inside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from graph.errors import DiskFull, Unavailable, UserError
from serve.http.encoding import AsciiJSONResponse

LOG = logging.getLogger("modegraph.serve")
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class ErrorDetail(BaseModel):
    """What went wrong: `message` for people, `code` for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetail


class ApiError(Exception):
    """A request that cannot be served: HTTP status, a short `code` for programs (and metrics), a message for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as clients read it, an ErrorBody."""
        kind = TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def error_response(problem: ApiError) -> Response:
    """The HTTP answer that tells `problem`."""
    return AsciiJSONResponse(problem.body(), problem.status, {**problem.headers, "x-error-code": problem.code})


def no_model() -> ApiError:
    """404 for whatever needs a model, on a server that has none."""
    told = "this server was started without a model: it searches and shows evidence (/v1/retrieve); start it with --model for answers"
    return ApiError(404, "no_model", told)


def store_unavailable(problem: Unavailable) -> ApiError:
    """503 for what writes an index while its database does not answer or its disk is full; why is for the log alone."""
    LOG.error("%s", problem)
    code, told = "store_gone", "the database of the index does not answer: nothing was written"
    if isinstance(problem, DiskFull):
        code, told = "disk_full", "the disk of the index is full: nothing of it is lost"
    return ApiError(503, code, f"{told}; search goes on, try again later", headers={"Retry-After": "10"})


def unknown_model(name: str, known: tuple[str, ...]) -> ApiError:
    """404 for a model that is not served."""
    if not known:
        return no_model()
    served = ", ".join(known)
    return ApiError(404, "model_not_found", f"model {name[:80]!r} is not served here; there are: {served}", "model")


def not_supported(place: str, why: str) -> ApiError:
    """400 for a field, by its name, that asks for what the server cannot do."""
    return ApiError(400, "not_supported", f"{place} is not supported: {why}", place)


def add_error_handlers(app: FastAPI) -> None:
    """Every exception of a route becomes an error body; what was not foreseen is logged and told as 500 without details."""

    @app.exception_handler(ApiError)
    async def told(request: Request, problem: ApiError) -> Response:
        return error_response(problem)

    @app.exception_handler(Unavailable)
    async def away(request: Request, problem: Unavailable) -> Response:
        return error_response(store_unavailable(problem))

    @app.exception_handler(UserError)
    async def refused(request: Request, problem: UserError) -> Response:
        return error_response(ApiError(400, "bad_value", str(problem)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problems: RequestValidationError) -> Response:
        return error_response(_validation_error(problems))

    @app.exception_handler(HTTPException)
    async def http(request: Request, problem: HTTPException) -> Response:
        told = "no such address" if problem.status_code == 404 else str(problem.detail)
        code = {404: "no_such_address", 405: "method_not_allowed"}.get(problem.status_code, "bad_request")
        headers = (
            {"Allow": ", ".join(allowed_methods(app, request.scope))} if problem.status_code == 405 else problem.headers
        )
        return error_response(ApiError(problem.status_code, code, told, headers=headers))

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, problem: Exception) -> Response:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=problem)
        return error_response(ApiError(500, "internal_error", "the server failed; its log says why"))


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that the address of a request takes, over all routes."""
    return [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]


def _validation_error(problems: RequestValidationError) -> ApiError:
    """The first problem, of alternatives the one that came furthest: 400 for a body that is no JSON, 422 for one of another form."""
    told = problems.errors()
    if told[0]["type"] == "json_invalid":
        return ApiError(400, "bad_json", f"the body is not JSON: {told[0].get('ctx', {}).get('error', 'unreadable')}")
    places = [_place(problem["loc"], problems.body, problem["type"] == "missing") for problem in told]
    nearest = [number for number, place in enumerate(places) if place[: len(places[0])] == places[0]]
    furthest = max(nearest, key=lambda number: len(places[number]))
    place = ".".join(str(part)[:80] for part in places[furthest])
    if place == "" and told[furthest]["type"] == "value_error":
        return ApiError(422, "bad_value", _words(told[furthest]))
    if place == "":
        return ApiError(422, "bad_value", "the body: expected a JSON object, sent with Content-Type: application/json")
    return ApiError(422, "bad_value", f"{place}: {_words(told[furthest])}", place)


def _place(told: Sequence[object], body: object, missing: bool) -> tuple[object, ...]:
    """The fields and rows that lead to a value of `body`, without pydantic's names of alternatives between them.

    >>> _place(("body", "stop", "list[function-after[whole_characters(), str]]", 0), {"stop": [7]}, False)
    ('stop', 0)
    """
    if told[0] != "body":
        return tuple(told[1:2])
    found, held = [], body
    for number, part in enumerate(told[1:], 2):
        inside = part in held if isinstance(held, Mapping) else isinstance(held, list) and isinstance(part, int)
        if inside or (missing and number == len(told)):
            found.append(part)
            held = held[part] if inside else None  # type: ignore[index]
    return tuple(found)


def _words(problem: Mapping[str, Any]) -> str:
    """What is wrong with a value, without pydantic's and Python's names for it."""
    said = str(problem["msg"]).removeprefix("Value error, ")
    return "expected a file" if said.startswith("Expected UploadFile") else _PLAIN.get(problem["type"], said)


_PLAIN = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
    "extra_forbidden": "no field of this request (docs/serving.md)",
    "string_unicode": "half a character (a lone surrogate)",
}

"""Errors in the form that OpenAI's clients expect: {"error": {"message", "type", "param", "code"}} and a status.

No message contains a key or an internal address. The text of a UserError is passed on unchanged, unless it is about a service or a damaged file.
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

from graph.errors import DamagedFile, DiskFull, ModelUnavailable, Unavailable, UserError
from serve.http.encoding import AsciiJSONResponse

LOG = logging.getLogger("modegraph.serve")
TYPES = {
    **dict.fromkeys((400, 405, 413, 422), "invalid_request_error"),
    **dict.fromkeys((408, 504), "timeout_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class ErrorDetail(BaseModel):
    """An error: `message` for people, `code` for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of an error response."""

    error: ErrorDetail


class ApiError(Exception):
    """A request that cannot be served: HTTP status, a short `code` for programs (and metrics), a message for people."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as an ErrorBody for clients."""
        kind = TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def error_response(problem: ApiError) -> Response:
    """The HTTP response for `problem`."""
    return AsciiJSONResponse(problem.body(), problem.status, {**problem.headers, "x-error-code": problem.code})


def no_model() -> ApiError:
    """404 for requests that need a model, on a server without one."""
    message = "this server has no model: it only searches and shows evidence (/v1/retrieve); start it with --model for answers"
    return ApiError(404, "no_model", message)


def model_unavailable(message: str) -> ApiError:
    """503 while the model's server does not answer."""
    return ApiError(503, "model_unavailable", message, headers={"Retry-After": "5"})


def unavailable_as_api_error(problem: Unavailable) -> ApiError:
    """503 because a model or the index's database does not answer, or because the disk is full; 500 for a damaged file of the server.

    The cause appears only in the log.
    """
    LOG.error("%s", problem)
    if isinstance(problem, DamagedFile):
        return ApiError(500, "damaged_file", "a file of the server is damaged; the server's log names it")
    if isinstance(problem, ModelUnavailable):
        return model_unavailable("a language model that the request needs does not answer; try again later")
    code, message = "store_unavailable", "the database of the index does not answer"
    if isinstance(problem, DiskFull):
        code, message = "disk_full", "the disk of the index is full"
    return ApiError(503, code, f"{message}; search still works; try again later", headers={"Retry-After": "10"})


def unknown_model(name: str, known: tuple[str, ...]) -> ApiError:
    """404 for a model that is not served."""
    served = ", ".join(known) or "none for this key"
    return ApiError(404, "model_not_found", f"model {name[:80]!r} is not served here; available: {served}", "model")


def lacks_scope(scope: str) -> ApiError:
    """403 for a key without the scope that a request needs."""
    return ApiError(403, "not_allowed", f"this key does not allow that: it lacks the scope {scope}")


def internal_error() -> ApiError:
    """500 for an unexpected exception, which the caller logs."""
    return ApiError(500, "internal_error", "the server failed; the cause is in its log")


class NotInUse(ApiError):
    """A change that is stored, but could not be put into use yet."""


def failed_write(problem: Exception, stored: bool) -> ApiError:
    """The error for a change that failed with `problem`; NotInUse if the change is `stored`.

    What a client can get wrong is checked before a write, so the cause is the server's; it appears only in the log.
    """
    if isinstance(problem, Unavailable):
        error = unavailable_as_api_error(problem)
    else:
        LOG.error("a write failed: %s", problem, exc_info=None if isinstance(problem, UserError) else problem)
        error = internal_error()
    if not stored:
        return error
    message = f"{error.message}; the change is stored, but not in use yet: send the request again later"
    return NotInUse(error.status, error.code, message, headers=error.headers)


def not_supported(field: str, reason: str) -> ApiError:
    """400 for a request whose field `field` asks for something that the server cannot do."""
    return ApiError(400, "not_supported", f"{field} is not supported: {reason}", field)


def add_error_handlers(app: FastAPI) -> None:
    """Turn every exception of a route into an error body; unexpected ones are logged and answered with 500, without details."""

    @app.exception_handler(ApiError)
    async def api_error(request: Request, problem: ApiError) -> Response:
        return error_response(problem)

    @app.exception_handler(Unavailable)
    async def unavailable_error(request: Request, problem: Unavailable) -> Response:
        return error_response(unavailable_as_api_error(problem))

    @app.exception_handler(UserError)
    async def user_error(request: Request, problem: UserError) -> Response:
        return error_response(ApiError(400, "bad_value", str(problem)))

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, problems: RequestValidationError) -> Response:
        return error_response(_validation_error(problems))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, problem: HTTPException) -> Response:
        status, code, message, headers = problem.status_code, "bad_request", str(problem.detail), problem.headers
        if status == 404:
            code, message = "no_such_address", "no such address; /openapi.json lists the routes"
        elif status == 405:
            code, headers = "method_not_allowed", {"Allow": ", ".join(allowed_methods(app, request.scope))}
        return error_response(ApiError(status, code, message, headers=headers))

    @app.exception_handler(Exception)
    async def unexpected_error(request: Request, problem: Exception) -> Response:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=problem)
        return error_response(internal_error())


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that any route accepts for the path of a request."""
    return [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in app.routes)
    ]


def _validation_error(problems: RequestValidationError) -> ApiError:
    """400 for a body that is not JSON; otherwise 422 for the first invalid value, with the deepest of its errors if several types are allowed there."""
    errors = problems.errors()
    if errors[0]["type"] == "json_invalid":
        return ApiError(400, "bad_json", f"the body is not JSON: {errors[0].get('ctx', {}).get('error', 'unreadable')}")
    locations = [_location(problem["loc"], problems.body, problem["type"] == "missing") for problem in errors]
    nearest = [number for number, location in enumerate(locations) if location[: len(locations[0])] == locations[0]]
    furthest = max(nearest, key=lambda number: len(locations[number]))
    location = ".".join(str(part)[:80] for part in locations[furthest])
    if location == "" and errors[furthest]["type"] == "value_error":
        return ApiError(422, "bad_value", _message_of(errors[furthest]))
    if location == "":
        return ApiError(422, "bad_value", "the body: expected a JSON object, sent with Content-Type: application/json")
    return ApiError(422, "bad_value", f"{location}: {_message_of(errors[furthest])}", location)


def _location(loc: Sequence[object], body: object, missing: bool) -> tuple[object, ...]:
    """The fields and indexes that lead to a value of `body`, without pydantic's names for alternative types; outside the body, the parameter's name.

    >>> _location(("body", "stop", "list[function-after[whole_characters(), str]]", 0), {"stop": [7]}, False)
    ('stop', 0)
    """
    if loc[0] != "body":
        return tuple(loc[1:2])
    path, value = [], body
    for number, part in enumerate(loc[1:], 2):
        is_present = part in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(part, int)
        if is_present or (missing and number == len(loc)):
            path.append(part)
            value = value[part] if is_present else None  # type: ignore[index]
    return tuple(path)


def _message_of(problem: Mapping[str, Any]) -> str:
    """The message about an invalid value, without pydantic's and Python's terms."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    return "expected a file" if message.startswith("Expected UploadFile") else _PLAIN.get(problem["type"], message)


_PLAIN = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "expected an object"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
    "extra_forbidden": "not a field of this request (docs/serving.md)",
    "string_unicode": "contains half a character (a lone surrogate)",
}

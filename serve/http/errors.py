"""What goes wrong, as an OpenAI client expects to read it: {"error": {"message", "type", "param", "code"}} and a status.

No message repeats a header, a key or an address of the inside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from graph.errors import UserError
from serve.http.encoding import AsciiJSON

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
    return AsciiJSON(problem.body(), problem.status, {**problem.headers, "x-error-code": problem.code})


def unknown_model(name: str, known: tuple[str, ...]) -> ApiError:
    """404 for a model that is not served."""
    served = ", ".join(known)
    return ApiError(404, "model_not_found", f"model {name[:80]!r} is not served here; there are: {served}", "model")


def add_error_handlers(app: FastAPI) -> None:
    """Every exception of a route becomes an error body; what was not foreseen is logged and told as 500 without details."""

    @app.exception_handler(ApiError)
    async def told(request: Request, problem: ApiError) -> Response:
        return error_response(problem)

    @app.exception_handler(UserError)
    async def refused(request: Request, problem: UserError) -> Response:
        return error_response(ApiError(400, "bad_value", str(problem)))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problems: RequestValidationError) -> Response:
        return error_response(_of_validation(problems))

    @app.exception_handler(HTTPException)
    async def http(request: Request, problem: HTTPException) -> Response:
        told = "no such address" if problem.status_code == 404 else str(problem.detail)
        code = {404: "no_such_address", 405: "method_not_allowed"}.get(problem.status_code, "bad_request")
        return error_response(ApiError(problem.status_code, code, told, headers=problem.headers))

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, problem: Exception) -> Response:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=problem)
        return error_response(ApiError(500, "internal_error", "the server failed; its log says why"))


def _of_validation(problems: RequestValidationError) -> ApiError:
    """The first problem: 400 for a body that is no JSON, 422 for one of another form."""
    problem = problems.errors()[0]
    if problem["type"] == "json_invalid":
        return ApiError(400, "bad_json", f"the body is not JSON: {problem.get('ctx', {}).get('error', 'unreadable')}")
    place = ".".join(str(part)[:80] for part in problem["loc"] if part not in ("body", "query", "path"))
    message = f"{place or 'body'}: {problem['msg']}"
    if place == "":
        message = "the body: expected a JSON object, sent with Content-Type: application/json"
    return ApiError(422, "bad_value", message, place or None)

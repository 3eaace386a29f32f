"""A stub engine for benchmarks without vLLM: it sends a token every STUB_TOKEN_S seconds.

Run: python -P benchmarks/stub_engine.py PORT.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

STUB_TOKEN_S = 0.02


def serve(port: int) -> None:
    """Answer chat completions on a port of this machine until stopped."""
    import uvicorn
    from fastapi import FastAPI, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse

    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": []}

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(request: Request) -> Response:
        body = await request.json()
        if body.get("stream"):
            return StreamingResponse(events(body), media_type="text/event-stream")
        await asyncio.sleep(STUB_TOKEN_S * body["max_tokens"])
        message = {"role": "assistant", "content": "token " * body["max_tokens"]}
        return JSONResponse({**head(body), "choices": [{"index": 0, "message": message, "finish_reason": "length"}]})

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


async def events(body: dict[str, Any]) -> AsyncIterator[bytes]:
    """A completion, token by token."""
    for _ in range(body["max_tokens"]):
        await asyncio.sleep(STUB_TOKEN_S)
        chunk = {**head(body), "choices": [{"index": 0, "delta": {"content": "token "}, "finish_reason": None}]}
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def head(body: dict[str, Any]) -> dict[str, Any]:
    """The fields at the start of every completion."""
    return {"id": "stub", "object": "chat.completion", "created": 0, "model": body["model"]}


if __name__ == "__main__":
    serve(int(sys.argv[1]))

"""The settings of `modegraph serve`: one frozen object, shared by all parts of the server."""

from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from graph.answer.support import Handling
from graph.config import Settings
from graph.shared.modes import ABSTAIN_AT, DEFAULT_MODE, Mode


class ServerSettings(Settings):
    """How the server listens, its limits, and its defaults for retrieval."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 for any free one")
    api_key: SecretStr | None = Field(
        None,
        description="the operator's key, with all rights; if set, requests need a key, except /health, /ready and the page's files",
    )
    keys: Path | None = Field(None, description="file of keys, made by `modegraph keys`, each with its own rights")
    audit_log: Path | None = Field(
        None, description="file that records each addition and deletion of documents, and the key used"
    )
    public_url: str | None = Field(
        None,
        description="address at which readers reach the page, for links to passages; by default that of the request",
    )
    writable: bool = Field(False, description="whether clients may add documents, and delete them over HTTP")
    feedback: bool = Field(False, description="whether readers' feedback on answers is stored with the index")
    show_runs: Path | None = Field(None, description="folder of training runs to show to the operator; none by default")
    max_feedback_mb: int = Field(256, ge=1, description="MiB of feedback to store; more is refused")
    capacity: int = Field(8, ge=1, le=1024, description="requests processed at the same time")
    queue: int = Field(4, ge=0, le=4096, description="requests that may wait; further ones immediately get status 429")
    write_queue: int = Field(
        64,
        ge=1,
        le=4096,
        description="uploads and deletions that may run or wait, in addition to other requests; further ones get status 429",
    )
    write_wait_s: float = Field(120.0, gt=0, description="longest wait for a turn to change the index; then 409")
    max_body_bytes: int = Field(1 << 20, ge=1024, description="largest body of a request")
    max_upload_bytes: int = Field(32 << 20, ge=1024, description="largest body of an upload of documents")
    max_connections: int = Field(
        2_000, ge=2, description="connections open at the same time; an idle one is closed for a new one"
    )
    idle_timeout_s: float = Field(
        5.0, gt=0, description="seconds within which an open connection must send the headers of a request"
    )
    file_seconds: float = Field(
        4.5,
        ge=0.1,
        description="CPU seconds allowed for reading a file of up to 1 MiB that is not plain text; more for larger files",
    )
    file_memory_mb: int = Field(
        512, ge=64, description="MiB of memory allowed for reading a file of up to 1 MiB that is not plain text"
    )
    whole_pages: bool = Field(
        False, description="whether to read uploaded HTML pages in full, not only their main text"
    )
    ocr: Literal["tesseract"] | None = Field(
        None, description="OCR program for pages without text (scans) in uploaded PDFs; none by default"
    )
    ocr_languages: str = Field("eng", min_length=1, description="languages of scans, joined by +, such as eng+deu")
    ocr_pages: int = Field(500, ge=1, description="maximum number of pages of a file to read by OCR")
    ocr_page_seconds: float = Field(30.0, ge=1, description="CPU seconds allowed for reading a page by OCR")
    body_timeout_s: float = Field(10.0, gt=0, description="seconds within which a body must arrive")
    request_timeout_s: float = Field(
        300.0, gt=0, description="seconds within which a request must be answered, except at /v1/documents"
    )
    unready_s: float = Field(
        0.0, ge=0, description="seconds that a stopping server keeps listening, with 503 at /ready"
    )
    drain_s: float = Field(30.0, ge=0, description="seconds that running requests have to finish when the server stops")
    max_question_chars: int = Field(8_000, ge=1, description="longest question")
    mode: Mode = Field(DEFAULT_MODE, description="retrieval mode, unless the request sets one")
    top_k: int = Field(5, ge=1, le=100, description="passages to read, unless the request sets a number")
    abstain: float = Field(
        ABSTAIN_AT,
        ge=0,
        le=1,
        description="answer “not in the documents” if the documents lack the answer with at least this probability, unless the request sets another",
    )
    max_context_tokens: int | None = Field(None, ge=1, description="longest context, unless the request sets one")
    max_answer_tokens: int = Field(512, ge=1, description="longest answer, unless the request sets one")
    selector: str = Field("", description="folder or hub name of the trained selector for `selector: trained`")
    reranker: str = Field("", description="folder or hub name of the cross-encoder for `reranker: true`")
    verifier: str = Field(
        "",
        description="folder or hub name of a trained verifier, or a language model (support, hf:NAME or openvino:FOLDER); by default the shipped word-based verifier",
    )
    unsupported: Handling = Field(
        "mark", description="what to do with sentences that the passages do not support, unless the request sets it"
    )
    otlp_endpoint: str | None = Field(None, description="base address of the OpenTelemetry collector for spans")

    @field_validator("api_key")
    @classmethod
    def _without_newline(cls, key: SecretStr | None) -> SecretStr | None:
        """The key without white space at its ends: a key read from a file usually ends with a newline, which no header can contain."""
        return None if key is None else SecretStr(key.get_secret_value().strip())

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_collector(cls, url: str | None) -> str | None:
        if url is not None and not is_collector_url(url):
            raise ValueError(
                "the address of a collector is http(s)://HOST[:PORT], such as http://localhost:4318, without /v1/traces, "
                "a query or a password (headers go into OTEL_EXPORTER_OTLP_HEADERS)"
            )
        return url

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str | None) -> str | None:
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("the address of the page is http(s)://HOST[:PORT][/PATH]")
        return url

    @model_validator(mode="after")
    def _check_protection(self) -> "ServerSettings":
        key = "" if self.api_key is None else self.api_key.get_secret_value()
        if self.api_key is not None and not key:
            raise ValueError("the API key is empty: give a key, or leave it out")
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the API key has characters that clients cannot send: use printable ASCII characters")
        if self.api_key is None and self.keys is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines: give --api-key or --keys, or stay on 127.0.0.1"
            )
        return self


def is_collector_url(url: str) -> bool:
    """Whether `url` is a valid base address of a collector of spans.

    >>> is_collector_url("http://localhost:4318"), is_collector_url("localhost:4318"), is_collector_url("http://me:word@localhost")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    extra = parts.query or parts.fragment or "@" in parts.netloc or parts.path.rstrip("/").endswith("/v1/traces")
    return is_valid and not extra and url.isascii() and url.isprintable() and " " not in url


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

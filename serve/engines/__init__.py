"""Model SPECs to engines. A SPEC names a kind of engine and what it opens; the command line passes it on as it stands."""

from pathlib import Path

from graph.pretrained.catalogue import MODELS
from graph.shared.errors import UserError
from graph.shared.types import LanguageModel
from serve.types import Engine

FORMS = f"hf:PATH_OR_NAME, vllm:PATH_OR_NAME, openai:NAME@URL, {', '.join(MODELS)}"


def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
    """The model that `spec` names; with `ledger`, every finished call is kept in that file and never made again.

    Raises UserError for an unknown kind, a model that cannot be opened, or a file that is no ledger.
    """
    engine = open_engine(spec)
    if ledger is None:
        return engine
    from serve.ledger import Ledger

    return Ledger(engine, ledger)


def open_engine(spec: str) -> Engine:
    """The engine that `spec` names; its libraries are imported only here."""
    kind, _, target = ("hf", "", spec) if spec in MODELS else spec.partition(":")
    if kind == "hf" and target:
        from serve.engines.hf_open import open_hf

        return open_hf(target)
    if kind == "openai" and target:
        from serve.engines.openai_api import open_openai

        return open_openai(target)
    if kind == "vllm" and target:
        from serve.engines.vllm_model import open_vllm

        return open_vllm(target)
    raise UserError(f"model {spec!r}", f"one of {FORMS}", "for example hf:Qwen/Qwen3-0.6B")

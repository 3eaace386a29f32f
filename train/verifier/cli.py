"""`modegraph train verifier`."""

from __future__ import annotations

import typer

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, Config, Set, SomeDataFolders, SomeOut
from graph.shared.console import say
from train.shared.cli_options import print_record, settings_of


def register(commands: typer.Typer) -> None:
    """Add `verifier` to the commands of `train`."""

    @commands.command(cls=command(settings="train.verifier.settings:VerifierSettings"))
    def verifier(
        data: SomeDataFolders = None,
        config: Config = None,
        settings: Set = None,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Train a verifier: it marks sentences that the passages they rest on do not support.

        Learns from the data of `synth claims`; use it with --verifier FOLDER.
        """
        from train.verifier.settings import VerifierSettings

        chosen = settings_of(VerifierSettings, config, settings, data=data or None, output=out)
        from train.verifier.train import train_verifier

        record = train_verifier(chosen)
        if as_json:
            print_record(chosen.output, record)
            return
        say(f"saved {chosen.output}: {record.trees} trees, {record.milliseconds:.2f} ms a claim")
        for name, value in record.figures.items():
            beside = f" (rule {record.rule[name]:.3f})" if name in record.rule else ""
            print(f"{name:26} {value:.3f}{beside}")
        for kind, (count, share) in record.kinds.items():
            print(f"{kind:26} {share:.3f} marked of {count:,}")

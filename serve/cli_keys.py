"""`modegraph keys`: the access keys of a server."""

from pathlib import Path
from typing import Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import ASKING, INPUT, LIMITS, Command, Group, option
from graph.shared.cli_options import AsJson, Where
from graph.shared.console import print_json, say

KeyFile = Annotated[
    Path, typer.Argument(metavar="KEYS", help="File of keys, for the option --keys of `modegraph serve`.")
]
KeyName = Annotated[str, option("--name NAME", INPUT, "Name of the key's holder, for metrics and logs.")]
Scopes = Annotated[
    list[str] | None,
    option("--scope SCOPE", LIMITS, "What the key allows: read (the default), write or metrics. Repeatable."),
]
OnlyCollections = Annotated[
    list[str] | None,
    option(
        "--collection NAME",
        LIMITS,
        "Collection that the key can read, by the name of its folder; all by default. Repeatable.",
    ),
]
Rate = Annotated[
    int | None, option("N", LIMITS, "Requests a minute; further ones are answered with status 429.", min=1)
]
Expires = Annotated[
    str | None, option("DATE", LIMITS, "When the key expires: 2027-01-31, or with a time, 2027-01-31T18:00:00Z.")
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of a key; `modegraph keys list` shows them.")]


def register_keys(app: typer.Typer) -> None:
    """Add `keys` to the command line."""
    about = "Make, list and revoke the keys of a server."
    commands = typer.Typer(cls=Group, help=about, no_args_is_help=True)
    commands.command("add", cls=Command)(add_command)
    commands.command("list", cls=Command)(list_command)
    commands.command("revoke", cls=Command)(revoke_command)
    app.add_typer(commands, name="keys", rich_help_panel=ASKING)


def add_command(
    file: KeyFile,
    name: KeyName,
    scope: Scopes = None,
    collection: OnlyCollections = None,
    where: Where = None,
    rate: Rate = None,
    expires: Expires = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown only once: the file stores its hash.

    With --where, the key can read only the documents that match. A running server accepts the key immediately; to replace a key,
    add another of the same name, and revoke the old one when its holder has the new one.
    """
    from serve.http.keys import change_keys, make_key

    key, text = make_key(
        name,
        scopes=tuple(scope or ("read",)),
        collections=tuple(collection) if collection else None,
        where=tuple(where or ()),
        rate=rate,
        expires=_with_time(expires),
    )
    change_keys(file, lambda keys: [*keys, key])
    say(f"modegraph: key {key.id} of {key.name} is in {file}")
    print_json({"id": key.id, "key": text}) if as_json else print(text)


def list_command(file: KeyFile, as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    from datetime import UTC, datetime

    from serve.http.keys import read_keys

    keys = read_keys(file)
    if as_json:
        print_json([{"id": key.id, **key.model_dump(mode="json", exclude={"sha256"})} for key in keys])
        return
    for key in keys:
        details = [
            "+".join(key.scopes),
            f"collections {', '.join(key.collections)}" if key.collections is not None else "all collections",
            *(f"where {condition}" for condition in key.where),
            *([f"{key.rate} requests a minute"] if key.rate else []),
            f"since {key.created:%Y-%m-%d}",
            *([f"until {key.expires:%Y-%m-%d %H:%M %Z}"] if key.expires else []),
            *(["expired"] if key.is_expired(datetime.now(UTC)) else []),
        ]
        print(f"{key.id}  {key.name}  {'; '.join(details)}")


def revoke_command(file: KeyFile, key_id: KeyId) -> None:
    """Revoke a key: every later request with it is refused."""
    from serve.http.keys import Key, change_keys

    def without(keys: list[Key]) -> list[Key]:
        found = f"key {key_id!r}: not in {file}"
        if not keys:
            raise UserError(found, "the id of a key; this file has no keys", "make one with `modegraph keys add`")
        remaining = [key for key in keys if key.id != key_id]
        if len(remaining) == len(keys):
            known = f"one of {', '.join(key.id for key in keys)}"
            raise UserError(found, known, "`modegraph keys list` shows them")
        return remaining

    change_keys(file, without)
    say(f"modegraph: key {key_id} is revoked")


def _with_time(date: str | None) -> str | None:
    """A date as midnight UTC of that day; a date with a time is unchanged."""
    return f"{date}T00:00:00Z" if date is not None and "T" not in date else date

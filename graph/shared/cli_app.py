"""Shared by every command of every package: the class of a command, its help page, and the errors for unknown commands and options."""

import inspect
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from graph.errors import UserError, nearest

INDEXING, ASKING, DATA, TRAINING, EVALUATION = "Index", "Ask and serve", "Data", "Train", "Evaluate"
SETTINGS = "Settings"
PANELS = (INDEXING, ASKING, DATA, TRAINING, EVALUATION, SETTINGS)
"""The groups of commands on the page of `modegraph --help`, in this order."""
INPUT, RETRIEVAL, MODEL, OUTPUT, LIMITS = "Input", "Retrieval", "Model", "Output", "Limits"
OPTION_PANELS = (INPUT, RETRIEVAL, MODEL, OUTPUT, LIMITS)
"""The groups of options on the page of a command, in this order; a command's own groups come before Output."""


def option(spec: str, panel: str, text: str, **more: Any) -> Any:
    """An option of a command. `spec` contains its names and the name of its value, as in "--runs FOLDER" (without a value, the option is a flag; without
    a name, it is named after the parameter); `panel` and `text` are its group and its text on the --help page, `more` typer's other settings.

    >>> option("--runs FOLDER", INPUT, "Runs to compare.").metavar
    'FOLDER'
    """
    names = [word for word in spec.split() if word.startswith("-")]
    value = " ".join(word for word in spec.split() if not word.startswith("-"))
    return typer.Option(*names, metavar=value, rich_help_panel=panel, help=text, **more)


COMMANDS_OF_OTHER_TOOLS = {
    **dict.fromkeys(("search", "retrieve", "query", "chat"), "ask"),
    **dict.fromkeys(("build", "ingest", "add"), "index"),
    **dict.fromkeys(("finetune", "fine-tune"), "tune"),
    **dict.fromkeys(("evaluate", "benchmark"), "eval"),
}
"""Command names of other tools, and the modegraph commands for the same tasks."""


class Group(TyperGroup):
    """A group of commands; the error for a misspelt command names the nearest one."""

    def get_help_option(self, ctx: Any) -> Any:
        """typer's --help, with our text."""
        return _with_our_text(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        """typer's parameters, with no value name for flags."""
        params = super().get_params(ctx)
        for flag in params:
            if getattr(flag, "is_flag", False):
                flag.metavar = ""
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of PANELS."""

        def place(name: str) -> int:
            panel = getattr(self.commands[name], "rich_help_panel", None)
            return PANELS.index(panel) if panel in PANELS else len(PANELS)

        return sorted(super().list_commands(ctx), key=place)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As in typer; UserError for an unknown option."""
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as problem:
            _raise_for_option(problem, ctx, self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As in typer, but a command of two words takes precedence; UserError for an unknown command."""
        if (both := " ".join(args[:2])) in self.commands and len(args) > 1:
            return both, self.commands[both], args[2:]
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = COMMANDS_OF_OTHER_TOOLS.get(args[0], "")
            near = near if near in self.commands else nearest(args[0], self.commands)
            group = full_command_name(ctx)
            found = f"no command {f'{group} {args[0]}'.strip()}"
            expected = f"did you mean {f'{group} {near}'.strip()}?" if near else ""
            raise UserError(found, expected, f"`{ctx.command_path} --help` lists the commands")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command; `command` makes a subclass for a command with settings, or with options that take several values."""

    several: ClassVar[Collection[str]] = ()
    """Options that take several values in a row."""
    settings: ClassVar[str] = ""
    """`module:Class` of the settings that --config and --set give, listed on the command's page."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As in typer, but with the lines of each paragraph of the description joined, and without the types of arguments."""
        super().__init__(*args, **kwargs)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        for argument in self.params:
            if argument.param_type_name == "argument":
                argument.display_type_rich = lambda ctx: ""  # type: ignore[attr-defined]

    def get_params(self, ctx: Any) -> list[Any]:
        """typer's parameters, arguments first and options in the order of OPTION_PANELS."""
        order = {panel: place for place, panel in enumerate(OPTION_PANELS)}

        def place(param: Any) -> float:
            is_option = param.param_type_name == "option"
            return order.get(param.rich_help_panel, order[OUTPUT] - 0.5) if is_option else -1.0

        return sorted(super().get_params(ctx), key=place)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As in typer, with arguments as INDEX instead of {INDEX}."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def get_help_option(self, ctx: Any) -> Any:
        """typer's --help, in the group Output."""
        return _with_our_text(super().get_help_option(ctx), OUTPUT)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Spread options with several values, then parse; UserError for an unknown option."""
        try:
            return super().parse_args(ctx, spread(args, self.several))
        except typer.TyperException as problem:
            _raise_for_option(problem, ctx, self)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page, with the settings at its end."""
        super().format_help(ctx, formatter)
        if self.settings:
            from graph.config import print_settings

            print_settings(self.settings)


def command(several: Collection[str] = (), settings: str = "") -> type[Command]:
    """The class of one command (`@app.command(cls=command(…))`): see the fields of `Command`."""
    return type("Command", (Command,), {"several": several, "settings": settings})


def spread(arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeat each of `options` before every further word that follows it, up to the next word that starts with "-".

    Click gives an option exactly one value. Positional arguments therefore go before such an option or after `--modes=dense`, which
    takes one value, as with argparse's nargs="+".

    >>> spread(["INDEX", "--modes", "dense", "naive", "--json"], {"--modes"})
    ['INDEX', '--modes', 'dense', '--modes', 'naive', '--json']
    """
    words: list[str] = []
    option, values = "", 0
    for word in arguments:
        if word.startswith("-"):
            option, values = word if word in options else "", 0
        elif option:
            if values:
                words.append(option)
            values += 1
        words.append(word)
    return words


def commands_named_with(option: str, group: Any, name: str, path: tuple[str, ...] = ()) -> list[str]:
    """The full names, below a group, of the commands that have this option and whose last word is `name`."""
    found = []
    for words, inner in getattr(group, "commands", {}).items():
        if words.split()[-1] == name and any(option in param.opts for param in inner.params):
            found.append(" ".join((*path, words)))
        found += commands_named_with(option, inner, name, (*path, words))
    return found


def full_command_name(ctx: Any) -> str:
    """The names of a command's groups and of the command, as typed after the program's name."""
    return str(ctx.command_path).partition(" ")[2]


def _with_our_text(option: Any, panel: str | None = None) -> Any:
    if option is not None:
        option.help, option.rich_help_panel, option.metavar = "Show this page and exit.", panel, ""
    return option


def _raise_for_option(problem: typer.TyperException, ctx: Any, command: Any) -> NoReturn:
    """Raise a UserError if an option is unknown; any other problem is raised unchanged.

    The error names the commands with the same last word that have this option, or else the nearest option, if any.
    """
    if not hasattr(problem, "possibilities"):
        raise problem
    option = str(getattr(problem, "option_name", ""))
    known = [name for param in command.get_params(ctx) for name in param.opts if name.startswith("--")]
    near, root = nearest(option, known), ctx.find_root()
    expected = f"did you mean {near}?" if near else ""
    if others := commands_named_with(option, root.command, ctx.info_name):
        expected = f"did you mean {' or '.join(f'`{root.info_name} {name}`' for name in others)}?"
    found = f"{full_command_name(ctx) or ctx.command_path}: no option {option}"
    raise UserError(found, expected, f"`{ctx.command_path} --help` lists the options") from None

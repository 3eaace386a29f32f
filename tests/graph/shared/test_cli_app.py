"""`--runs A B C` and `--runs A --runs B --runs C` are equivalent; errors for unknown options and commands name a similar one or the help command."""

import doctest

import pytest
import typer

from graph.errors import UserError
from graph.shared import cli_app
from graph.shared.cli_app import Command, Group, command, spread


def test_the_examples_in_docstrings_are_correct():
    assert doctest.testmod(cli_app).failed == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--runs A B C --data D", "--runs A --runs B --runs C --data D"),
        ("--runs A --runs B", "--runs A --runs B"),
        ("X --data D --runs A B", "X --data D --runs A --runs B"),
        ("--data D E", "--data D E"),
        ("--runs --data D", "--runs --data D"),
        ("--runs=A B", "--runs=A B"),
        ("", ""),
    ],
)
def test_values_are_spread_over_repeated_options(line, expected):
    assert spread(line.split(), {"--runs"}) == expected.split()


def test_an_option_takes_several_values():
    app = typer.Typer()
    parsed = {}

    @app.command(cls=command(several=("--runs",)))
    def compare(index: str, runs: list[str] = typer.Option(...), data: str = "none", as_json: bool = False):  # noqa: B008
        parsed.update(index=index, runs=runs, data=data, as_json=as_json)

    app(["I", "--runs", "A", "B", "C", "--data", "D", "--as-json"], standalone_mode=False)
    assert parsed == {"index": "I", "runs": ["A", "B", "C"], "data": "D", "as_json": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show -k 3", "no option -k. Did you mean --top-k?"),
        ("show --top_k 3", "no option --top_k. Did you mean --top-k?"),
        ("show --top-k=3 --jsn", "no option --jsn. Did you mean --json?"),
        ("shwo", "no command shwo. Did you mean show?"),
        ("--jsn show", "no option --jsn"),
        (
            "show --gguf q8_0",
            "show: no option --gguf. Did you mean `modegraph train show`? `modegraph show --help` lists the options",
        ),
        ("show --chapter 3", "show: no option --chapter. `modegraph show --help` lists the options"),
        ("xyzzy", "no command xyzzy. `modegraph --help` lists the commands"),
    ],
)
def test_an_unknown_option_or_command_is_reported_with_a_remedy(words: str, message: str) -> None:
    app = typer.Typer(cls=Group)
    app.callback()(lambda: None)

    @app.command(cls=Command)
    def show(top_k: int = 1, as_json: bool = typer.Option(False, "--json")) -> None: ...

    train = typer.Typer(cls=Group)

    @train.command(cls=Command, name="show")
    def show_in_train(gguf: str = typer.Option("", "--gguf")) -> None: ...

    app.add_typer(train, name="train")
    with pytest.raises(UserError) as problem:
        app(words.split(), standalone_mode=False, prog_name="modegraph")
    assert message in str(problem.value)
    app(["show", "--top-k", "3"], standalone_mode=False)

"""`--runs A B C` and `--runs A --runs B --runs C` are the same command line."""

import doctest

import pytest
import typer

from eval.shared import spread as module
from eval.shared.spread import SpreadingCommand, spread


def test_doctest():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_spread(given, expected):
    assert spread(given.split(), {"--runs"}) == expected.split()


def test_a_command_takes_several_values():
    app = typer.Typer()
    seen = {}

    @app.command(cls=SpreadingCommand)
    def compare(index: str, runs: list[str] = typer.Option(...), data: str = "none", as_json: bool = False):  # noqa: B008
        seen.update(index=index, runs=runs, data=data, as_json=as_json)

    app(["I", "--runs", "A", "B", "C", "--data", "D", "--as-json"], standalone_mode=False)
    assert seen == {"index": "I", "runs": ["A", "B", "C"], "data": "D", "as_json": True}

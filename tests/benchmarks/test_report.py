"""benchmarks/report.py: the parser refuses a number below the minimum of its option."""

import pytest

from benchmarks.report import at_least, new_parser


def test_a_number_below_the_minimum_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = new_parser("Steps.")
    parser.add_argument("--steps", type=at_least(2))
    assert parser.parse_args(["--steps", "2"]).steps == 2
    with pytest.raises(SystemExit):
        parser.parse_args(["--steps", "1"])
    assert "argument --steps: 1: expected at least 2" in capsys.readouterr().err

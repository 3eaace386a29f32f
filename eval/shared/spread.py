"""`--runs A B C` on the command line: an option that may be repeated also takes several values at once.

Click gives an option exactly one value, so the words up to the next option are spread: `--runs A --runs B --runs C`.
Positional arguments therefore go before such an option, as with argparse's nargs="+".
"""

from collections.abc import Collection, Sequence
from typing import Any

from typer.core import TyperCommand


class SpreadingCommand(TyperCommand):
    """A command (`@app.command(cls=SpreadingCommand)`) whose repeatable options take several values in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Spread, then parse as usual."""
        repeatable = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        return super().parse_args(ctx, spread(args, repeatable))


def spread(arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """Repeat each of `options` before every further word that follows it, up to the next word that starts with "-".

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

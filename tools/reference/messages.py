"""troubleshooting/messages.md: every message of a UserError, as in the code, with … for the parts filled in."""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from graph.errors import did_you_mean
from tools.reference.markdown import page, table

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "graph": "Documents, index, retrieval",
    "data_synth": "Training data",
    "train": "Training",
    "serve": "Serving",
    "eval": "Evaluation",
    "modegraph": "Command line and Python",
}
ERRORS = {
    "UserError",
    "Unavailable",
    "DamagedFile",
    "DiskFull",
    "ModelUnavailable",
    "IndexBusy",
    "OtherFormat",
    "NoDocumentMeets",
    "PromptTooLong",
    "NoAnswer",
}
"""UserError and its subclasses."""
GAP = "…"
MAX_TEXTS = 6
"""The largest number of texts listed for a part that has several possible texts."""
ABOUT = (
    "Bad input gives one line: what was found, what was expected, what to do. Search this page for part of the line without names and numbers: "
    f"`{GAP}` stands for what is filled in. [Troubleshooting](index.md) covers other problems."
)


class Message(NamedTuple):
    """The three parts of a UserError, with GAP for the parts filled in."""

    found: str
    expected: str
    remedy: str


def pages() -> dict[str, str]:
    """The page, by file name."""
    parts = []
    for package, title in PACKAGES.items():
        rows = sorted({message for message in messages(package) if any(map(plain_words, message))}, key=by_words)
        parts += [
            f"## {title}",
            table(["found", "expected", "what to do"], [[_cell(cell) for cell in row] for row in rows]),
        ]
    return {"troubleshooting/messages.md": page("Messages", ABOUT, *parts)}


def plain_words(part: str) -> str:
    """A part in lower case, without gaps, spaces, ":" and "=" at its ends: the text to sort by, empty for a part without words."""
    return part.strip(GAP + " :=").lower()


def by_words(message: Message) -> tuple[bool, str, Message]:
    """A sort key: by the words of the first part; messages whose first part has no words come last."""
    first = plain_words(message.found)
    return not first, first or plain_words(message.expected), message


def messages(package: str) -> Iterator[Message]:
    """Every message of a package."""
    for file in sorted((ROOT / package).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]
        for call in error_calls(tree):
            inside = [scope for scope in scopes if any(node is call for node in ast.walk(scope))]
            parts = [possible_texts(part, inside, call) for part in call.args[:3]]
            for found, expected, remedy in itertools.product(*parts, *[[""]] * (3 - len(parts))):
                yield Message(found, expected, remedy)


def error_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls that make a UserError, and those with which a subclass passes a message to its base."""
    for node in ast.walk(tree):
        if is_error(node):
            yield node
        elif isinstance(node, ast.ClassDef) and any(
            isinstance(base, ast.Name) and base.id in ERRORS for base in node.bases
        ):
            yield from (each for each in ast.walk(node) if is_init(each))


def is_init(node: ast.AST) -> bool:
    """Whether a node is a call of a method `__init__`, as in `super().__init__(…)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"


def is_error(node: ast.AST) -> bool:
    """Whether a node is a call that makes a UserError."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS


def possible_texts(part: ast.expr, scopes: list[ast.AST], at: ast.AST) -> list[str]:
    """The possible texts of an expression at a node, GAP if unknown; a name is resolved where it is assigned, innermost function first."""
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    if isinstance(part, ast.JoinedStr):
        return ["".join(piece.value if isinstance(piece, ast.Constant) else GAP for piece in part.values)]
    if isinstance(part, ast.IfExp):
        return [*possible_texts(part.body, scopes, at), *possible_texts(part.orelse, scopes, at)][:MAX_TEXTS]
    if isinstance(part, ast.BoolOp):
        return [text for value in part.values for text in possible_texts(value, scopes, at) if text][:MAX_TEXTS]
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == did_you_mean.__name__:
        return [f"did you mean {GAP}?", ""]
    if isinstance(part, ast.BinOp):
        return [
            left + right
            for left in possible_texts(part.left, scopes, at)
            for right in possible_texts(part.right, scopes, at)
        ][:MAX_TEXTS]
    if isinstance(part, ast.Name):
        for depth in range(len(scopes), 0, -1):
            values_here = [value for value in values_at(part.id, scopes[depth - 1], at) if value is not part]
            if values_here:
                outer = scopes[: depth - 1] or scopes[:1]
                return [text for value in values_here for text in possible_texts(value, outer, at)][:MAX_TEXTS]
    return [GAP]


def values_at(name: str, scope: ast.AST, at: ast.AST) -> list[ast.expr]:
    """The values that a name may have at a node: those assigned before it, back to an unconditional assignment; if none, all that the scope assigns."""
    values: list[ast.expr] = []
    for statement in statements_before(scope, at):
        values += values_of(name, statement)
        if values and isinstance(statement, ast.Assign | ast.AnnAssign):
            return values
    return values or values_of(name, scope)


def statements_before(scope: ast.AST, at: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function that may have run before a node, the nearest first, without branches that leave the function."""
    blocks = []
    for node in () if isinstance(scope, ast.Module) else ast.walk(scope):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            around = [n for n, each in enumerate(block) if at in ast.walk(each)] if isinstance(block, list) else []
            blocks += [block[:n] for n in around]
    for block in reversed(blocks):
        for statement in reversed(block):
            leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise | ast.Return)
            if not (leaves and not statement.orelse):
                yield statement


def values_of(name: str, scope: ast.AST) -> list[ast.expr]:
    """The values assigned to a name in a scope; for a module, outside its functions."""
    nodes = scope.body if isinstance(scope, ast.Module) else ast.walk(scope)
    assigned = (pair for node in nodes for pair in assignments_of(node))
    return [value for target, value in assigned if isinstance(target, ast.Name) and target.id == name]


def assignments_of(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with their values; those of `a, b = x, y` one by one."""
    if isinstance(node, ast.AnnAssign | ast.NamedExpr):
        return [(node.target, node.value)] if node.value is not None else []
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs += zip(target.elts, node.value.elts, strict=False)
        else:
            pairs.append((target, node.value))
    return pairs


def _cell(text: str) -> str:
    """The text as Markdown: text in backticks as code, all else escaped."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        pieces = [text.replace("`", "\\`")]
    return "`".join(piece if index % 2 else _escaped(piece) for index, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    for special in "\\*_[]<>{}#":
        text = text.replace(special, f"\\{special}")
    return text

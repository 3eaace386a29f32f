"""Errors that a user can fix, printed by the command line as one line; and redaction of secrets.

Every package raises UserError. Errors, progress lines and records go through `redact` or `redacted`."""

import copyreg
import os
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

MIN_SIMILARITY = 0.6
"""The minimum similarity, from 0 to 1, at which one name counts as a misspelling of another."""
_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"did you mean|\w+ should ")
"""An expectation that is already a sentence: a question, or pydantic's "List should have at least 1 item"."""
_STOPS = re.compile(r"(?<![\s./\\])[.;][.; ]*$")
"""The full stops and semicolons at the end of a sentence, but not those of a folder's name: ".", ".." or "a/.."."""
_COMMANDS = ("pip", "modegraph")


def nearest(text: str, known: Iterable[str]) -> str:
    """The known name that, as a whole or in one of its words, is most similar to `text`; "" if none is similar enough.

    >>> nearest("hosp", ["hops", "paths"]), nearest("--bas", ["--base-name", "--bind"]), nearest("graph", ["hierarchy", "paths"])
    ('hops', '--base-name', '')
    """
    scores = {
        name: (max(_similarity(text, part) for part in (name, *_WORD.findall(name))), _similarity(text, name))
        for name in known
    }
    best = max(scores, key=scores.__getitem__, default="")
    return best if best and scores[best][0] >= MIN_SIMILARITY else ""


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """The question whether `text` is a misspelling of the `nearest` known name, for a UserError; "" if none is similar enough."""
    near = nearest(text, known)
    return f"did you mean {near!r}?" if near else ""


class UserError(Exception):
    """Bad input, in up to three sentences: what was found (with the value, unless it is a secret), what was expected, what to do.

    `expected` and `remedy` may be empty. There is no full stop at the end, because the text may end with a command to copy.

    >>> str(UserError("corpus.jsonl line 3: 'text' is missing", "a row with an id and a text", "add the field"))
    "corpus.jsonl line 3: 'text' is missing. Expected a row with an id and a text. Add the field"
    """

    def __init__(self, found: str, expected: str, remedy: str) -> None:
        expectation = expected if not expected or _SENTENCE.match(expected) else f"Expected {expected}"
        parts = [_STOPS.sub("", part.rstrip()) for part in (found, _capital(expectation), _capital(remedy)) if part]
        sentences = [part if part.endswith(("?", ".")) else f"{part}." for part in parts[:-1]]
        super().__init__(redact(" ".join([*sentences, *parts[-1:]])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its message, since an error may come from another process."""
        return copyreg.__newobj__, (type(self), str(self))  # type: ignore[attr-defined]


class Unavailable(UserError):
    """A failure of the operator's machines, such as a database that is down or refuses connections; a server hides the details from clients."""


class DamagedFile(Unavailable):
    """A file of the operator's, such as an index's, is damaged or has another format."""


class DiskFull(Unavailable):
    """The disk of an index, or of a worker that builds one, is full."""


class ModelUnavailable(Unavailable):
    """A language model, or its server, no longer answers."""


def unreadable(file: Path, problem: OSError, expected: str) -> UserError:
    """The error for a file that cannot be read: it is missing, is a folder, has a file as a parent, or has permissions that forbid reading."""
    above = next((parent for parent in file.parents if parent.is_file()), None)
    if above is not None:
        remedy = f"put it into a folder as {file.name}, and give that folder"
        if above.name == file.name:
            remedy = f"give {above.parent}"
        return UserError(f"{above}: a file", f"a folder that contains {file.name}", remedy)
    if file.is_dir():
        return UserError(f"{file}: a folder", expected, "name a file in it")
    if isinstance(problem, FileNotFoundError):
        return UserError(f"{file}: no such file", expected, "check the path")
    return UserError(f"{file}: cannot be read ({problem.strerror})", expected, "make it readable")


def _capital(sentence: str) -> str:
    """A sentence with an initial capital, unless it starts with a command or code.

    >>> _capital("check the path"), _capital("pip install x"), _capital("top_k=5 would do")
    ('Check the path', 'pip install x', 'top_k=5 would do')
    """
    first = sentence.partition(" ")[0].rstrip(":,")
    return sentence[:1].upper() + sentence[1:] if first.isalpha() and first not in _COMMANDS else sentence


def _similarity(text: str, name: str) -> float:
    matcher = SequenceMatcher(None, name.strip("-").casefold(), text.strip("-").casefold())
    return matcher.ratio() if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= MIN_SIMILARITY else 0.0


MARK = "***"
MIN_SECRET_LENGTH, MIN_SECRET_PART = 6, 8
"""Minimum length of an environment value to redact where it is a whole word, and anywhere: shorter ones occur in ordinary words."""
_ASSIGNED = re.compile(
    r"(?i)(?<![\w.-])((?:--)?(?:[\w.-]*[-_.])?(?:(?:api|access|secret|private)[-_]?key|(?<!per_)token|secret|passw(?:or)?d)\s*=\s*)((?:bearer\s+)?[^\s;,]+)"
)
_PASSWORD_OF_A_URL = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)(?=@)")
_KNOWN_FORMATS = re.compile(
    r"\bhf_(?:[a-z]+_)*[A-Za-z0-9]{16,}|(?<![\w-])sk-(?:[0-9]{10}[\w-]*|(?=[\w-]*(?:[A-Za-z0-9]{16}|[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z]))[\w-]{16,})"
)
"""Keys of Hugging Face and OpenAI; unlike the words of hf_documents_2024 and sk-wikipedia-dump, they are long, mix letters with digits or capitals, or begin
with ten digits."""
_VARIABLE = re.compile(r"(?i)(?:^|_)(?:key|token|password|secret)$")


def redact(text: str) -> str:
    """The text with *** in place of passwords in URLs, values of `api_key=…`, keys of known formats and secrets from the environment (`HF_TOKEN`, …).

    >>> redact("--set api_key=abc; postgresql://me:word@host/db")
    '--set api_key=***; postgresql://me:***@host/db'
    """
    text = _PASSWORD_OF_A_URL.sub(rf"\1:{MARK}", text)
    text = _ASSIGNED.sub(rf"\1{MARK}", text)
    text = _KNOWN_FORMATS.sub(MARK, text)
    secrets = {value for name, value in os.environ.items() if is_secret(name) and len(value) >= MIN_SECRET_LENGTH}
    for secret in sorted(secrets, key=len, reverse=True):
        anywhere = re.escape(secret)
        text = re.sub(anywhere if len(secret) >= MIN_SECRET_PART else rf"(?<![^\W_]){anywhere}(?![^\W_])", MARK, text)
    return text


def redacted(value: Any) -> Any:
    """A JSON value for a record: every string is redacted, and the string of a field whose name marks a secret is replaced entirely."""
    if isinstance(value, Mapping):
        return {
            name: MARK if is_secret(str(name)) and isinstance(item, str) and item else redacted(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return redact(value) if isinstance(value, str) else value


def is_secret(name: str) -> bool:
    """Whether the value of a setting, a field or a variable of this name is a secret.

    >>> is_secret("api_key"), is_secret("HF_TOKEN"), is_secret("max_answer_tokens"), is_secret("key_file_name")
    (True, True, False, False)
    """
    return bool(_VARIABLE.search(name))


def first_line(problem: Exception) -> str:
    """The first line of the message of a library's error; the error's type if the message is empty.

    >>> first_line(ValueError("no such file\\nsee the manual")), first_line(OSError())
    ('no such file', 'OSError')
    """
    return next(iter(str(problem).strip().splitlines()), "") or type(problem).__name__

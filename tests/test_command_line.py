"""The command line: every command, option and help page, as typer builds them, and every command line in the docs."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from graph.config import as_yaml, problems_in, setting_lines, settings_class
from graph.errors import UserError
from graph.shared.cli_app import OPTION_PANELS, OUTPUT, Command, Group, spread
from graph.shared.modes import DEFAULT_MODE
from modegraph.cli_config import commands_with_settings
from modegraph.cli_root import LIBRARIES
from tests.commands import build_app, run
from tests.places import ROOT
from tests.test_configs import CONFIGS

# The files whose command lines are checked; docs/troubleshooting/messages.md is not among them, since its command lines are incomplete.
PAGES = [
    ROOT / "AGENTS.md",
    ROOT / "README.md",
    ROOT / "Makefile",
    ROOT / "docker-compose.yaml",
    *sorted(file for file in (ROOT / "docs").rglob("*.md") if file.name != "messages.md"),
    *sorted((ROOT / "examples").glob("*.md")),
    *sorted((ROOT / "configs").rglob("*.yaml")),
    *sorted(file for file in (ROOT / "deploy").rglob("*") if file.suffix != ".pyc" and file.is_file()),
]
WIDTH = 80
PANELS = {*OPTION_PANELS, "Server"}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


@cache
def tree() -> Any:
    return typer.main.get_command(build_app())


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*path, name))


COMMANDS = {" ".join(path): command for path, command in walk(tree()) if not hasattr(command, "commands")}
GROUPS = {" ".join(path): command for path, command in walk(tree()) if hasattr(command, "commands")}
OPTIONS = [
    (name, param) for name, command in COMMANDS.items() for param in command.params if param.param_type_name == "option"
]
NAMES = {opt for _, param in OPTIONS for opt in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}


@cache
def help_page(words: str) -> str:
    done = CliRunner().invoke(
        build_app(), [*words.split(), "--help"], terminal_width=WIDTH, env={"COLUMNS": str(WIDTH)}
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_of_the_program_are_found() -> None:
    assert {"index", "ask", "train ms", "eval retrieval", "config check"} <= COMMANDS.keys() and len(COMMANDS) > 40


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_short_description_and_the_class_that_reports_user_errors(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    first = command.help.split("\n\n")[0]
    assert re.match(r"[A-Z][a-z-]+ ", first) and first.endswith((".", ").")), "begin with a verb, end with a full stop"
    assert len(" ".join(first.split())) <= 110, (
        "shorten the first paragraph to 110 characters, and put details below it"
    )


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_has_help_and_the_class_that_reports_user_errors(name: str) -> None:
    assert isinstance(GROUPS[name], Group) and GROUPS[name].help


@pytest.mark.parametrize(("name", "param"), OPTIONS, ids=[f"{name} {param.opts[0]}" for name, param in OPTIONS])
def test_every_option_has_help_and_a_group_and_only_flags_have_no_metavar(name: str, param: Any) -> None:
    assert re.fullmatch(r"\S.{8,}\.", param.help or "", flags=re.DOTALL), (
        "write a help text of at least ten characters that ends with a full stop"
    )
    assert param.help.endswith("Repeatable.") == param.multiple
    assert param.rich_help_panel in PANELS
    assert (param.metavar == "") == bool(param.is_flag) and param.metavar == (param.metavar or "").upper()
    assert [opt for opt in param.opts if opt.startswith("--")] == list(param.opts), (
        "an option should have no short form"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_help_and_a_name(name: str) -> None:
    for param in COMMANDS[name].params:
        if param.param_type_name == "argument":
            assert param.help and param.metavar, param.name


def test_an_option_has_one_meaning() -> None:
    """Its help, type, metavar and group are the same everywhere; only the word "Repeatable." is added where the option can be repeated."""
    meanings: dict[str, dict[tuple[Any, ...], list[str]]] = {}
    for name, param in OPTIONS:
        kind = param.type_descriptor.annotation
        element = kind.__args__[0] if param.multiple else kind
        meaning = (param.help.removesuffix(" Repeatable."), str(element), param.metavar, param.rich_help_panel)
        meanings.setdefault(param.opts[0], {}).setdefault(meaning, []).append(name)
    assert {option: found for option, found in meanings.items() if len(found) > 1} == {}


def test_every_command_with_a_mode_except_serve_has_the_same_default_mode() -> None:
    """Without `--mode`, `serve` uses the mode in its settings."""
    modes = {name: param.default for name, param in OPTIONS if param.opts[0] == "--mode"}
    assert modes.pop("serve") is None
    assert len(modes) >= 3 and set(modes.values()) == {DEFAULT_MODE}


def test_the_arguments_index_run_and_config_have_one_meaning_each() -> None:
    arguments: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for param in command.params:
            if param.param_type_name == "argument":
                arguments.setdefault(param.metavar, set()).add(param.help)
    assert {
        name: found for name, found in arguments.items() if name in ("INDEX", "RUN", "CONFIG") and len(found) > 1
    } == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_mentions_an_option_that_does_not_exist(name: str) -> None:
    command = COMMANDS[name]
    text = " ".join([command.help, *(param.help for param in command.params)])
    assert set(OPTION.findall(text)) - NAMES <= {"--max-model-len"}  # an option of vLLM
    own_options = {opt for param in command.params for opt in param.opts}
    mentioned = set(OPTION.findall(re.sub(r"`[^`]*`|use it with[^.]*\.", "", command.help)))
    assert mentioned <= own_options, "the help names an option that this command does not have"


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_a_help_page_fits_eighty_columns_and_truncates_nothing(name: str) -> None:
    shown = help_page(name)
    assert all(len(line) <= WIDTH for line in shown.splitlines())
    assert "…" not in shown and not re.search(r"<\w+>", shown)
    words = " ".join(shown.replace("│", " ").split())
    for param in {**COMMANDS, **GROUPS}[name].params if name else ():
        assert " ".join(param.help.split()) in words, param.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_the_groups_of_options_are_in_order(name: str) -> None:
    titles = [title for title in re.findall(r"╭─ ([\w ]+?) ─", help_page(name)) if title in OPTION_PANELS]
    assert titles == [panel for panel in OPTION_PANELS if panel in titles] and OUTPUT in titles


def test_the_main_help_page_has_its_groups_in_order() -> None:
    titles = re.findall(r"╭─ ([\w ]+?) ─", help_page(""))
    assert titles == ["Options", "Index", "Ask and serve", "Data", "Train", "Evaluate", "Settings"]


def test_the_main_help_page_imports_nothing_slow() -> None:
    script = (
        "import sys\nfrom modegraph.cli import main\nsys.argv = ['modegraph', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-P", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "pydantic", "torch", "yaml", "scipy", "transformers", "faiss", "openai"}
    assert heavy & set(loaded.stderr.split()) == set()


WITH_SETTINGS = dict(commands_with_settings(tree()))


def test_exactly_the_commands_with_settings_take_config_or_set() -> None:
    take = {name for name, param in OPTIONS if param.opts[0] in ("--config", "--set")}
    assert take == set(WITH_SETTINGS)


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_a_help_page_lists_the_settings_with_default_and_meaning(name: str) -> None:
    shown = " ".join(help_page(name).replace("│", " ").split())
    for each in setting_lines(settings_class(WITH_SETTINGS[name])):
        if each.meaning:
            assert re.search(rf"{re.escape(each.key)}\s+{re.escape(each.meaning)}", shown), each
            assert not each.default or each.default.split()[0] in shown


@pytest.mark.parametrize("path", sorted(set(WITH_SETTINGS.values())))
def test_every_setting_has_a_description(path: str) -> None:
    for each in setting_lines(settings_class(path)):
        is_placeholder = each.key.endswith("NAME")
        assert is_placeholder or (
            re.match(r"\S+ .*\w", each.meaning) and not each.meaning.startswith(("At least", "Above", "One of"))
        ), each.key


@pytest.mark.parametrize("path", sorted(set(WITH_SETTINGS.values())))
def test_the_settings_shown_match_the_class(path: str) -> None:
    """The YAML shown, when read, has every setting of the class with its default; required settings have no value."""
    kind = settings_class(path)
    values = yaml.safe_load(as_yaml(kind, "Settings"))
    optional = {key: value for key, value in values.items() if kind.model_fields[key].is_required() is False}
    assert set(values) == set(kind.model_fields)
    assert [each.text for each in problems_in(kind, optional, "shown") if not each.missing] == []
    defaults = {name: field.get_default() for name, field in kind.model_fields.items() if not field.is_required()}
    built = kind.model_construct(**defaults).model_dump(mode="json", include=set(defaults))
    assert optional == built


def test_settings_are_shown_for_the_short_and_the_long_name_of_a_command() -> None:
    assert run("config", "show", "train", "ms").output == run("config", "show", "ms").output
    error = run("config", "show", "mss").exception
    assert isinstance(error, UserError) and "Did you mean" in str(error) and "train ms" in str(error)
    group = run("config", "show", "train").exception
    assert str(group).startswith("train: a group of commands. Expected one of train tiny, train sft, train ms")
    assert "`modegraph plan`" in run("config", "show", "plan").output


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_shipped_config_is_valid_for_the_command_it_is_named_after(file: Path) -> None:
    done = run("config", "check", file)
    assert done.exit_code == 0 and "still required" not in done.output, done.output
    first = re.search(r"settings of `modegraph (?:\w+ )?(\w+)`", done.output)
    assert first and first.group(1) == {"eval": "run", "data": "import", "study": "study"}.get(
        file.parent.name, file.stem.partition("-")[0]
    )


def test_a_bad_config_is_reported_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("model: m\nlearning_rat: 1\nlora: {rnk: 3}\nlabel_smoothing: 2\n")
    done = run("config", "check", file)
    assert done.exit_code == 1
    assert "unknown key 'learning_rat'. Did you mean 'learning_rate'?" in done.output
    assert "unknown key 'lora.rnk'. Did you mean 'lora.rank'?" in done.output
    assert "label_smoothing = 2" in done.output and "`modegraph train ms`" in done.output
    assert "--set: data, output" in done.output


def test_the_versions_of_the_libraries_are_printed() -> None:
    done = run("--version")
    lines = [line.partition(" ") for line in done.output.splitlines()]
    assert done.exit_code == 0 and [name for name, _, _ in lines] == ["modegraph", "Python", *LIBRARIES]
    assert all(version[:1].isdigit() or version == "not installed" for _, _, version in lines)


def test_the_shell_completion_covers_commands_options_and_modes() -> None:
    def completions(*words: str) -> list[str]:
        place = {"COMP_WORDS": " ".join(("modegraph", *words)), "COMP_CWORD": str(len(words))}
        environment = {**place, "_MODEGRAPH_COMPLETE": "complete_bash"}
        return CliRunner().invoke(build_app(), [], prog_name="modegraph", env=environment).output.split()

    assert {"compact", "compare", "config", "copy"} == set(completions("co"))
    assert "--top-k" in completions("ask", "--top") and "hierarchy" in completions("ask", "--mode", "hi")
    # The program detects the shell from its parent processes, so it must run under a known shell.
    shown = subprocess.run(
        ["bash", "-c", f"{sys.executable} -P -m modegraph --show-completion; true"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "_MODEGRAPH_COMPLETE=complete_bash" in shown.stdout


def program(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "modegraph", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("aks", "no command aks. Did you mean ask?"),
        ("retrieve isles", "no command retrieve. Did you mean ask?"),
        ("train mss", "no command train mss. Did you mean train ms?"),
        ("ask --topk 3 a b", "ask: no option --topk. Did you mean --top-k?"),
        ("ask --top-k x a b", "ask: invalid value for '--top-k'"),
        ("index", "index: missing argument 'DOCUMENTS'"),
        ("status a b", "status: got unexpected extra argument"),
        ("--nope", "no option --nope"),
        ("export run --gguf q8_0", "export: no option --gguf. Did you mean `modegraph train export`?"),
    ],
)
def test_a_wrong_command_line_is_reported_in_one_line(words: str, message: str) -> None:
    done = program(*words.split())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("modegraph: ") and message in done.stderr and done.stderr.count("\n") == 1


# Command lines in the docs


def lines_of(file: Path) -> Iterator[str]:
    """The command lines in the code spans, shell blocks, comments and service commands of a file, without what precedes `modegraph `."""
    for line in file.read_text(encoding="utf-8").splitlines():
        yield from re.findall(r"`(modegraph [^`]*)`", line)
        shell = re.match(
            r"^(?:\$|#|@\$\(BIN\)/|ExecStart=\S*/|\s*[A-Z_]+=\S+)?\s*(?:#\s*)?(modegraph [a-z-]+ .*)$", line.strip()
        )
        if shell and "`" not in shell.group(1) and not re.search(r"modegraph (turns|speaks|as) ", shell.group(1)):
            yield shell.group(1)


DOCUMENTED = sorted({(file.relative_to(ROOT).as_posix(), line) for file in PAGES for line in lines_of(file)})


def command_of(words: list[str]) -> tuple[str, Any, list[str]]:
    """The name and the command that the words select in the tree, preferring names of two words, and the remaining words."""
    found, path = tree(), []
    while names := [name for n in (2, 1) if (name := " ".join(words[:n])) in getattr(found, "commands", {})]:
        path.append(names[0])
        found, words = found.commands[names[0]], words[len(names[0].split()) :]
    return " ".join(path), found, words


def is_a_command_line(words: list[str]) -> bool:
    return bool(words) and (words[0] in tree().commands or words[0].startswith("-"))


@pytest.mark.parametrize(("file", "line"), DOCUMENTED, ids=[f"{file}: {line[:60]}" for file, line in DOCUMENTED])
def test_a_documented_command_line_is_valid(file: str, line: str) -> None:
    try:
        words = shlex.split(line.replace("…", "ELLIPSIS"), comments=True)[1:]
    except ValueError:
        words = line.split()[1:]
    assert is_a_command_line(words), f"modegraph has no command {words[:1]}"
    name, command, rest = command_of(words)
    known = {opt: param for param in command.params for opt in param.opts} | {"--help": None, "-h": None}
    for word in rest:
        if word.startswith("-") and word != "-" and not word.startswith("--vllm-arg="):
            assert word.partition("=")[0] in known, f"modegraph {name} has no {word}"
    if hasattr(command, "commands"):
        assert not rest or rest[0] == "ELLIPSIS" or rest[0].startswith("-"), (
            f"modegraph {name} has no command {rest[0]}"
        )


def test_command_lines_in_the_docs_are_found_and_an_option_is_repeated_for_each_of_its_values() -> None:
    assert len(DOCUMENTED) > 60 and len({file for file, _ in DOCUMENTED}) > 10
    assert spread(["--modes", "a", "b"], {"--modes"}) == ["--modes", "a", "--modes", "b"]


@pytest.mark.parametrize(
    "words",
    [
        "index documents --out {url}",
        "synth questions {url} --out q",
        "synth preferences i --questions q --out {url}",
        "status {url}",
        "ask {url} Who?",
        "compact {url}",
        "serve i {url}",
    ],
)
def test_a_url_is_refused_as_a_folder(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = run(*words.format(url="s3://bucket/index").split()).exception
    message = "s3:/bucket/index: a URL. Expected a folder on this machine, whose files can be mapped into memory. Use a local folder, and copy its files from or to the URL"
    assert isinstance(error, UserError) and str(error) == message
    assert list(tmp_path.iterdir()) == []

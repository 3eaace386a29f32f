"""The public API: importing it loads no other package of ours and no heavy library, its list of names is complete, and a file that hides one of our
folders is reported.
"""

import pkgutil
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

import modegraph as mg
from graph.shared.modes import DEFAULT_MODE
from tests.places import ROOT


def run_python(program: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_modegraph_loads_no_other_package_of_ours_and_no_heavy_library() -> None:
    ours = ("graph", "serve", "train", "eval", "data_synth", "modegraph")
    done = run_python("import sys, modegraph; print(*sorted(sys.modules))")
    loaded = [name for name in done.stdout.split() if name.split(".")[0] in (*ours, "numpy", "torch", "pydantic")]
    assert loaded == ["modegraph"]


@pytest.mark.parametrize("package", ["fastapi", "starlette"])
def test_a_command_whose_extra_is_not_installed_names_the_extra(package: str) -> None:
    done = run_python(
        f"import sys; sys.modules['{package}'] = None; sys.argv = ['modegraph', 'serve', 'index']\n"
        "from modegraph.cli import main; main()"
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"modegraph: the package {package} is not installed. Expected the extra `serve`. pip install 'modegraph[serve]'\n"
    )


@pytest.mark.slow
def test_only_streams_need_the_extra_serve(isles: mg.Index) -> None:
    done = run_python(
        f"""
import sys
for name in ("fastapi", "starlette", "uvicorn", "mcp", "prometheus_client", "multipart"):
    sys.modules[name] = None
import modegraph as mg, modegraph.integrations.adapter
index = modegraph.integrations.adapter.open_if_path({str(isles.folder)!r})
print(len(index), mg.index.__name__, mg.AnswerStream.__name__, mg.compare.__name__, mg.tune.__name__, mg.synth.__name__)
try:
    index.ask_stream("Who built the Lantern?", model="hf:my-ms")
except mg.UserError as problem:
    print(problem)
"""
    )
    assert done.stdout.splitlines() == [
        "5 index AnswerStream compare tune modegraph.synth",
        "the package starlette is not installed. Expected the extra `serve`. pip install 'modegraph[serve]'",
    ], done.stderr


@pytest.mark.slow
def test_a_call_whose_extra_is_not_installed_names_the_extra(tmp_path: Path) -> None:
    done = run_python(
        """
import sys
sys.modules["trl"] = None
import modegraph as mg
for call in (lambda: mg.tune, lambda: mg.train.sft(model="m", data="d", out="o")):
    try:
        call()
    except mg.UserError as problem:
        print(problem)
""",
        tmp_path,
    )
    expected = "the package trl is not installed. Expected the extra `train`. pip install 'modegraph[train]'"
    assert done.stdout.splitlines() == [expected] * 2, done.stderr


def test_exactly_the_public_names_exist() -> None:
    assert all(getattr(mg, name) is not None for name in mg.__all__)
    assert dir(mg) == sorted(mg.__all__)
    with pytest.raises(AttributeError, match="no attribute 'indx'"):
        _ = mg.indx


def test_the_default_of_every_mode_argument_is_the_default_mode() -> None:
    functions = (mg.Index.retrieve, mg.Index.explain, mg.Index.ask, mg.Index.astream, mg.synth.preferences)
    assert {signature(function).parameters["mode"].default for function in functions} == {DEFAULT_MODE}


def test_no_module_has_the_name_of_a_public_function() -> None:
    """Importing such a module would hide the function; `synth` and `train` are public as modules."""
    modules = {each.name for each in pkgutil.iter_modules(mg.__path__)}
    assert modules & {*mg.__all__} == {"synth", "train"}


def test_a_file_that_hides_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    done = run_python("import sys; sys.path.insert(0, '.'); import modegraph as mg; mg.Document", tmp_path)
    assert done.returncode == 1 and f"'import train' finds {tmp_path / 'train.py'}" in done.stderr

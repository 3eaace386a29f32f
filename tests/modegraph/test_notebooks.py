"""The notebooks in examples/ as committed; `make notebooks` runs them."""

import json

import pytest

from tests.places import EXAMPLES

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_no_outputs_are_committed_and_every_code_cell_is_valid_python(file) -> None:
    cells = [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    for cell in cells:
        compile("".join(cell["source"]), file.name, "exec")

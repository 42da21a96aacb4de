"""The notebooks of `examples/notebooks`, and the blocks of the documentation, are executed."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks_without_outputs() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ipykernel", "matplotlib", "distributed"):
        pytest.importorskip(module)
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("WRITEPATH_ROOT", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(here)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any(out.output_type in ("execute_result", "display_data") for out in shown)


def test_the_blocks_of_the_page_run(here: Path) -> None:
    for module in ("matplotlib", "distributed", "tqdm"):
        pytest.importorskip(module)
    import matplotlib

    matplotlib.use("agg")
    page = (ROOT / "docs" / "python.md").read_text()
    blocks = [block.split("```", 1)[0] for block in page.split("```python\n")[1:]]
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)

"""The package as such: types, and what the documentation shows."""

import subprocess
import sys
from pathlib import Path

import pytest
import writepath as wp

ROOT = Path(__file__).resolve().parents[2]


def test_types_are_strict() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_every_public_name_has_words() -> None:
    for name in wp.__all__:
        thing = getattr(wp, name)
        assert name == "__version__" or thing.__doc__, name
        if isinstance(thing, type):
            for key, member in vars(thing).items():
                if not key.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert member.__doc__, f"{name}.{key}"


def test_duckdb_reads_the_events() -> None:
    duckdb = pytest.importorskip("duckdb")
    page = (ROOT / "docs" / "python.md").read_text()
    query = page.split("```sql\n", 1)[1].split("```", 1)[0]
    wp.run(fs="ext4,era=3.4", workload="fsync-last,n=10,case=extend")
    rows = duckdb.sql(query).fetchall()
    assert {row[0]: row[1] for row in rows}["WS"] > 10, rows


def test_polars_reads_the_events() -> None:
    pytest.importorskip("polars")
    run = wp.run(fs="ext4,era=3.4", workload="fsync-last,n=10,case=extend")
    assert run.events_polars().height == run.events.num_rows

"""What the tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL = "fixed,capacity_bytes=67108864"
"""A drive of 64 MiB, which takes milliseconds."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    """Each test runs in a folder of its own: results go there."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a result, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def command(*words: object) -> tuple[int, str, str]:
    """The command in a process of its own: exit code, stdout, stderr."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "writepath", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tells `./test` which tests were skipped, and why."""
    skips = os.environ.get("WRITEPATH_SKIPS")
    if report.skipped and skips and isinstance(report.longrepr, tuple):
        with Path(skips).open("a", encoding="utf-8") as file:
            file.write(f"python: {report.nodeid}: {report.longrepr[2]}\n")

"""Units of metrics, by their names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("_ns", "ns"),
    ("_us", "us"),
    ("_bytes", "bytes"),
    ("_sectors", "512-byte sectors"),
    ("_iops", "1/s"),
    ("_per_s", "1/s"),
    ("_percent", "%"),
)


def unit_of(name: str) -> str:
    """The unit of a metric: ``fsync_ns`` has ``ns``; a count has ``1``."""
    if name.endswith("mib_per_s"):
        return "MiB/s"
    last = name.rsplit(".", 1)[-1]
    if last in ("iops", "bytes"):
        return {"iops": "1/s", "bytes": "bytes"}[last]
    return next((unit for suffix, unit in _SUFFIXES if last.endswith(suffix)), "1")


class Metrics(dict[str, Any]):
    """Metrics of a run by name: whole numbers and real ones.

    ``metrics["fsync_ns"]`` is the number, ``metrics.units["fsync_ns"]`` its unit.
    """

    @property
    def units(self) -> dict[str, str]:
        """The unit of each metric; ``1``: a count."""
        return {name: unit_of(name) for name in self}

    def rows(self) -> list[tuple[str, Any, str]]:
        """Name, value and unit of each metric."""
        return [(name, value, unit_of(name)) for name, value in self.items()]

    def _repr_html_(self) -> str:
        return table(("metric", "value", "unit"), self.rows())


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as HTML."""
    from html import escape

    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(c))}</td>" for c in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)

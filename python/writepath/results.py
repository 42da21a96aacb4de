"""Results as objects."""

from __future__ import annotations

import json
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from writepath import _native
from writepath._calls import Answer, call
from writepath.errors import UsageError
from writepath.units import Metrics, table

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")


class Result:
    """What a verb found: the document that ``--json`` prints, and the text of the command."""

    def __init__(self, answer: Answer) -> None:
        self.document: dict[str, Any] = answer.document
        """The document of ``--json``. Its names end with their units (``_ns``, ``_bytes``)."""
        self.text: str = answer.text
        """What the command prints."""
        self.notes: str = answer.notes
        """What the command prints to stderr, a line each."""
        self.exit_code: int = answer.exit_code
        """The command's exit code: 0, or 1 if the answer is no."""
        self.command: list[str] = ["writepath", *answer.words]
        """The command that gives the same."""

    @property
    def ok(self) -> bool:
        """Is the exit code 0?"""
        return self.exit_code == 0

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {' '.join(self.command[1:])}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


class Explanation(Result):
    """Where the time of one call, or of all of them, went."""

    @property
    def stages(self) -> Any:
        """A pandas.DataFrame: a row a stage, with its time (``ns``)."""
        import pandas as pd

        stages = self.document.get("stages", [])
        keys = ("stage", "ns", "mean_ns", "max_ns", "calls", "percent")
        return pd.DataFrame([{k: s[k] for k in keys if k in s} for s in stages])

    @property
    def total_ns(self) -> int:
        """Length of the call, or of all calls together, nanoseconds."""
        return int(self.document["total_ns"])

    def _repr_html_(self) -> str:
        stages = [(s["stage"], int(s["ns"])) for s in self.document.get("stages", [])]
        if not stages:
            return super()._repr_html_()
        return _bar(stages) + f"<pre>{escape(self.text)}</pre>"


def _bar(stages: list[tuple[str, int]], width: int = 680) -> str:
    """Stages as one bar, with a legend: an SVG of a fixed width in CSS pixels."""
    whole = sum(ns for _, ns in stages) or 1
    parts, legend, x = [], [], 0.0
    for n, (name, ns) in enumerate(stages):
        wide, colour = ns * width / whole, _COLOURS[n % len(_COLOURS)]
        label = f"{escape(name)}: {ns / 1000:,.1f} us ({100 * ns / whole:.1f} %)"
        parts.append(
            f'<rect x="{x:.2f}" y="0" width="{wide:.2f}" height="28" fill="{colour}">'
            f"<title>{label}</title></rect>"
        )
        legend.append(
            f'<rect x="0" y="{40 + 18 * n}" width="12" height="12" fill="{colour}"/>'
            f'<text x="18" y="{50 + 18 * n}" font-size="12" font-family="sans-serif" '
            f'fill="currentColor">{label}</text>'
        )
        x += wide
    height = 44 + 18 * len(stages)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">'
        + "".join(parts + legend)
        + "</svg>"
    )


class Run(Result):
    """A run of one workload: its folder, metrics, events and syncs."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.path: Path = Path(str(self.document["result"]))
        """Folder of the result; the verbs of the command take it."""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def metrics(self) -> Metrics:
        """Numbers of the workload (``fsync_ns``, ``ops_per_s``, …), with units."""
        return Metrics(self.document["numbers"])

    @property
    def device(self) -> Metrics:
        """Counters of the drive after the unmount, with units."""
        return Metrics(self.document["device_counters"])

    @property
    def fs(self) -> Metrics:
        """Counters of the file system before the unmount, with units."""
        return Metrics(self.document["fs_counters"])

    @property
    def events_path(self) -> Path:
        """The Parquet file of the events, for DuckDB, polars and others.

        Events of a result of version 0.2 or older are converted to a temporary file.
        Raises UsageError if no events are recorded.
        """
        own = self.path / "events.parquet"
        if own.exists():
            return own
        old = [self.path / name for name in ("events.ndjson.zst", "events.ndjson")]
        found = next((path for path in old if path.exists()), None)
        if found is None:
            message = f"{self.path}: no events are recorded"
            raise UsageError(2, "events", message, "run it again with events='all'")
        return self._converted(found)

    def _converted(self, events: Path) -> Path:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="writepath-events-")
            _native.events_table(events, Path(self._scratch.name) / "events.parquet")
        return Path(self._scratch.name) / "events.parquet"

    @property
    def events(self) -> Any:
        """The events as a pyarrow.Table: one row an event; docs/results.md has the columns.

        Times are virtual and in nanoseconds, sectors have 512 bytes.
        """
        import pyarrow.parquet as parquet

        return parquet.read_table(self.events_path)

    def events_pandas(self) -> Any:
        """The events as a pandas.DataFrame."""
        return self.events.to_pandas()

    def events_polars(self) -> Any:
        """The events as a polars.DataFrame (extra ``polars``)."""
        import polars

        return polars.read_parquet(self.events_path)

    @property
    def fsyncs(self) -> Any:
        """A pandas.DataFrame: one row a sync call, with the time of each stage.

        Columns: ``number``, ``call``, ``target``, ``task``, ``at_ns`` (virtual time of the call),
        ``total_ns``, then one column a stage, in nanoseconds; stages add up to ``total_ns``.
        """
        return self.calls()

    def calls(self, call_name: str | None = None) -> Any:
        """As `fsyncs`, of the calls of a name: ``"fdatasync"``, ``"write"``, …"""
        import pandas as pd

        options = {"all": True, "call": call_name}
        rows = call(["explain"], [self.path], options).document["calls"]
        for row in rows:
            row["stages"] = {s["stage"]: s["ns"] for s in row["stages"]}
        stages = dict.fromkeys(name for row in rows for name in row["stages"])
        own = ("number", "call", "target", "task", "at_ns", "total_ns")
        table = [
            {k: r[k] for k in own} | {name: r["stages"].get(name, 0) for name in stages}
            for r in rows
        ]
        return pd.DataFrame(table, columns=[*own, *stages])

    def explain(
        self, op: int | None = None, *, slowest: int | None = None, summary: bool = False
    ) -> Explanation:
        """Where the time of a sync went: call number ``op`` (from 1), or the slowest, or all."""
        options = {"op": op, "slowest": slowest, "summary": summary}
        return Explanation(call(["explain"], [self.path], options))

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Claims of a run: none; those of an experiment are in `Experiment.claims`."""
        return []

    def plot(self, ax: Any = None) -> Any:
        """Draws the mean time of the stages of all syncs, in microseconds (extra ``plot``).

        Returns the matplotlib axes.
        """
        import matplotlib.pyplot as plt

        summary = self.explain(summary=True)
        stages = summary.stages
        ax = ax or plt.subplots(figsize=(8, 0.4 * len(stages) + 1))[1]
        ax.barh(stages["stage"], stages["mean_ns"] / 1000, color=_COLOURS[0])
        ax.invert_yaxis()
        ax.set_xlabel("mean time of a sync (us)")
        return ax

    def _repr_html_(self) -> str:
        head = self.metrics._repr_html_()
        try:
            figure = self.explain(summary=True)
        except UsageError:
            # No events, or no sync.
            return head
        stages = [(s["stage"], int(s["mean_ns"])) for s in figure.document["stages"]]
        mean = figure.document["mean_ns"] / 1000
        calls = f"{figure.document['calls']} calls of {figure.document['names']}"
        title = f"<p>{escape(calls)}: mean {mean:,.1f} us</p>"
        return head + title + _bar(stages)


class Experiment(Result):
    """All points of an experiment file: a table, and the verdict of each claim."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.path: Path = Path(str(self.document["result"]))
        """Folder of the result."""

    @property
    def points(self) -> Any:
        """A pandas.DataFrame: one row a run, with the swept values, the seed and the metrics.

        Names of metrics end with their units (``_ns``, ``_bytes``, ``_iops``).
        """
        import pandas as pd

        text = {key: str for key in self.keys}
        return pd.read_csv(self.path / "points.csv", dtype=text)

    @property
    def keys(self) -> list[str]:
        """The swept keys: ``fs.era``, ``workload.n``, …"""
        points = self.document.get("points") or [{}]
        return list(points[0].get("values", {}))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Mean, least, greatest and spread of each metric over the seeds of each point."""
        return list(self.document.get("points", []))

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Each claim: ``id``, value, band, ``verdict``."""
        return list(self.document.get("claims", []))

    def _repr_html_(self) -> str:
        html: str = self.points.head(40).to_html(index=False)
        if self.claims:
            rows = [(c.get("id"), c.get("ours"), c.get("verdict")) for c in self.claims]
            html += table(("claim", "value", "verdict"), rows)
        return html


class Crash(Result):
    """Crash states of programs: how many there are, and which break a rule."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.lines: list[dict[str, Any]] = answer.lines
        """The documents before the last of ``crash --json``: each failure as it was found."""

    @property
    def totals(self) -> Metrics:
        """Counts: ``raw_states``, ``distinct_states``, ``programs``, …"""
        return Metrics(self.document.get("totals", {}))

    @property
    def broken(self) -> dict[str, int]:
        """Rule -> number of crash states that break it; 0: it holds, or is not checked."""
        return dict(self.document.get("broken", {}))

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The first failures of each rule: the rule, the file, and the command that shows it."""
        return [line for line in self.lines if line.get("kind") == "failure"]


class Reproduction(Result):
    """Papers, reproduced."""

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Each claim: ``id``, the paper's value, the simulated one, ``verdict``."""
        return list(self.document.get("claims", []))

    def _repr_html_(self) -> str:
        rows = [(c["id"], c.get("ours"), c["verdict"]) for c in self.claims]
        return table(("claim", "simulated", "verdict"), rows)


def load(path: str | Path = "results/latest") -> Run:
    """The result of an earlier run: its folder, ``results/latest``, or a folder above it."""
    folder = Path(path)
    folder = folder / "latest" if (folder / "latest").exists() else folder
    summary = folder / "summary.json"
    if not summary.exists():
        hint = "name a result, such as results/latest; writepath.listing('results') lists them"
        raise UsageError(2, "result", f"{path}: no result found", hint)
    document = json.loads(summary.read_text())
    if document.get("schema") != "writepath.run/1":
        raise UsageError(2, "result", f"{path}: not the result of a run", "name that of a run")
    document["result"] = str(folder)
    return Run(Answer(["explain", str(folder)], 0, document, "", "", []))

"""The verbs of the command as functions.

Every keyword argument is the option of the same name (``max_events`` is ``--max-events``); one that
is left out has the command's default. A test compares the names with those of the command.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Union, overload

from writepath._calls import PathLike, Progress, call
from writepath.results import Crash, Experiment, Explanation, Reproduction, Result, Run

Number = Union[int, str]
"""A number, or a size or time with its unit: ``4096``, ``"29GiB"``, ``"5m"``."""


def _paths(paths: PathLike | Iterable[PathLike]) -> list[PathLike]:
    if isinstance(paths, (str, os.PathLike)):
        return [paths]
    return list(paths)


@overload
def run(
    file: None = None,
    *,
    fs: str | None = None,
    device: str | None = None,
    workload: str | None = None,
    elevator: str | None = None,
    cpu: str | None = None,
    seed: int | None = None,
    partition_start: int | None = None,
    partition_size: Number | None = None,
    image: PathLike | None = None,
    save_image: PathLike | None = None,
    fio_json: PathLike | None = None,
    events: str | None = None,
    max_events: int | None = None,
    replay: PathLike | None = None,
    think: bool = False,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Run: ...


@overload
def run(
    file: PathLike,
    *,
    seed: int | None = None,
    shard: str | None = None,
    jobs: int | None = None,
    again: bool = False,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Experiment: ...


def run(
    file: PathLike | None = None,
    *,
    fs: str | None = None,
    device: str | None = None,
    workload: str | None = None,
    elevator: str | None = None,
    cpu: str | None = None,
    seed: int | None = None,
    partition_start: int | None = None,
    partition_size: Number | None = None,
    image: PathLike | None = None,
    save_image: PathLike | None = None,
    fio_json: PathLike | None = None,
    events: str | None = None,
    max_events: int | None = None,
    replay: PathLike | None = None,
    think: bool = False,
    shard: str | None = None,
    jobs: int | None = None,
    again: bool = False,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Run | Experiment:
    """Runs a workload on a file system and a drive; or every point of an experiment file.

    ``fs``: file system and options, ``"ext4,era=3.4"`` (default ``ext4,era=4.6``).
    ``device``: preset and parameters, ``"ssd-128,queue_depth=1"`` (default ``ssd-128``).
    ``workload``: name and options (default ``fsync-last``). `file_systems`, `devices` and
    `workloads` list the names. ``partition_start`` counts 512-byte sectors, ``partition_size``
    bytes. ``events``: ``"none"``, ``"calls"``, ``"requests"`` or ``"all"`` (default).
    ``out``: results folder (default ``results``).

    An experiment file (TOML) takes ``shard`` (``"2/8"``), ``jobs`` (parallel runs) and ``again``.

    ``run(workload=…)`` returns a `Run`, ``run("file.toml")`` an `Experiment`. An exit code of 1
    (a claim that does not hold) or 4 (calls that the storage failed) is in ``exit_code``.
    """
    options = {
        "fs": fs, "device": device, "workload": workload, "elevator": elevator, "cpu": cpu,
        "seed": seed, "partition_start": partition_start, "partition_size": partition_size,
        "image": image, "save_image": save_image, "fio_json": fio_json, "events": events,
        "max_events": max_events, "replay": replay, "think": think, "shard": shard, "jobs": jobs,
        "again": again, "out": out,
    }  # fmt: skip
    if file is None:
        return Run(call(["run"], [], options, progress))
    return Experiment(call(["run"], [file], options, progress))


def explain(
    run: Run | PathLike,
    *,
    op: int | None = None,
    call: str | Sequence[str] | None = None,
    slowest: int | None = None,
    summary: bool = False,
) -> Explanation:
    """Where the time of a sync went: the stages of its critical path, which add up to 100 %.

    ``run``: a `Run`, or the folder of a result. ``op``: number of the call, from 1 (default 1).
    ``call``: names of the system calls to number (default fsync and fdatasync).
    ``slowest``: explain the N-th slowest. ``summary``: all calls together.
    """
    path = run.path if isinstance(run, Run) else run
    names = ",".join(call) if call is not None and not isinstance(call, str) else call
    options = {"op": op, "call": names, "slowest": slowest, "summary": summary}
    return Explanation(_call(["explain"], [path], options))


def crash(
    programs: PathLike | None = None,
    *,
    fs: str | Sequence[str] | None = None,
    device: str | None = None,
    count: int | None = None,
    first: int | None = None,
    seed: int | None = None,
    size: Number | None = None,
    elevator: str | None = None,
    space: str | None = None,
    complete: int | None = None,
    samples: int | None = None,
    max_states: int | None = None,
    require: str | None = None,
    no_check: bool = False,
    known: PathLike | None = None,
    check: str | None = None,
    checker: str | None = None,
    second: int | None = None,
    mounts: int | None = None,
    workers: int | None = None,
    budget: str | None = None,
    minimise: int | None = None,
    reproducer: PathLike | None = None,
    state_file: PathLike | None = None,
    every_mode: bool = False,
    every_version: bool = False,
    client: Any = None,
    progress: Progress = None,
) -> Crash:
    """Explores every crash state of programs, recovers each, and checks what was promised.

    ``programs``: ``"seq-2"``, ``"wild"``, a fio job, a program file, a folder, or the steps of a
    program (default ``seq-1``). ``fs``: file system and options (default ``ext4,era=6.18``), or
    several. ``size``: capacity of the drive in bytes. ``budget``: stop after this time of the host.
    ``state_file``: the same call continues from it. ``every_version``: in each kernel version.

    ``client``: a ``dask.distributed.Client``; the programs are explored on its workers, with the
    same result. Exit code 1 (a broken rule) is in ``exit_code``.
    """
    options = {
        "fs": fs, "device": device, "count": count, "first": first, "seed": seed, "size": size,
        "elevator": elevator, "space": space, "complete": complete, "samples": samples,
        "max_states": max_states, "require": require, "no_check": no_check, "known": known,
        "check": check, "checker": checker, "second": second, "mounts": mounts,
        "workers": workers, "budget": budget, "minimise": minimise, "reproducer": reproducer,
        "every_mode": every_mode,
        "every_version": every_version,
    }  # fmt: skip
    words = [] if programs is None else [programs]
    if client is None:
        options["state_file"] = state_file
        return Crash(_call(["crash", "run"], words, options, progress))
    from writepath.sweeps import explore

    with tempfile.TemporaryDirectory(prefix="writepath-crash-") as scratch:
        options["state_file"] = state_file or Path(scratch) / "state"
        explore(client, words, options, progress)
        return Crash(_call(["crash", "run"], words, options, progress))


def replay(
    files: PathLike | Iterable[PathLike],
    *,
    on: str | None = None,
    mode: str | None = None,
    depth: int | None = None,
    format: str | None = None,
    columns: str | None = None,
    from_: str | None = None,
    action: str | None = None,
    offset: Number | None = None,
    wrap: bool = False,
    align: bool = False,
    fill: str | None = None,
    torn_ok: bool = False,
    scenario: int | None = None,
    to_mark: str | None = None,
    to_entry: int | None = None,
    base: PathLike | None = None,
    size: Number | None = None,
    force: bool = False,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Result:
    """Replays a block trace on a modelled drive, or a dm-log-writes log into an image.

    ``on``: device preset. ``from_`` is the option ``--from``. Latencies of the document are in
    nanoseconds.
    """
    options = {
        "on": on, "mode": mode, "depth": depth, "format": format, "columns": columns,
        "from": from_, "action": action, "offset": offset, "wrap": wrap, "align": align,
        "fill": fill, "torn_ok": torn_ok, "scenario": scenario, "to_mark": to_mark,
        "to_entry": to_entry, "base": base, "size": size, "force": force, "out": out,
    }  # fmt: skip
    return Result(call(["replay"], _paths(files), options, progress))


def calibrate(
    inputs: PathLike | Iterable[PathLike],
    *,
    class_: str,
    base: str | None = None,
    hold_out: str | Sequence[str] | None = None,
    from_: str | None = None,
    torn_ok: bool = False,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Result:
    """Fits a drive model to measurements, and tells the error on loads that are held out.

    ``inputs``: fio, pg_test_fsync, ioping or iostat reports, CSV lists, block traces.
    ``class_``: ``"ssd"``, ``"emmc"``, ``"fixed"``, ``"plain"`` or ``"zns"``. ``out``: a new device
    file, which ``device="file:NAME"`` of `run` takes.
    """
    options = {
        "class": class_, "base": base, "hold_out": hold_out, "from": from_, "torn_ok": torn_ok,
        "out": out,
    }  # fmt: skip
    return Result(call(["calibrate"], _paths(inputs), options, progress))


def reproduce(
    papers: str | Sequence[str] = (),
    *,
    quick: bool = False,
    crash: int | None = None,
    seed: int | None = None,
    strict: bool = False,
    again: bool = False,
    jobs: int | None = None,
    out: PathLike | None = None,
    client: Any = None,
    progress: Progress = None,
) -> Reproduction:
    """Reproduces papers: runs, figures, and a verdict for each claim.

    ``papers``: names (default all five); `listing` with ``"papers"`` lists them. ``crash``: power
    failures to explore. ``client``: a ``dask.distributed.Client``; each paper is a task of it.
    Exit code 1 (a verdict is not the pinned one) is in ``exit_code``.
    """
    names = [papers] if isinstance(papers, str) else list(papers)
    options = {"quick": quick, "crash": crash, "seed": seed, "strict": strict, "out": out}
    if client is not None:
        from writepath.sweeps import reproduce_on

        reproduce_on(client, names, options | {"again": again}, progress)
        again = False
    options |= {"again": again, "jobs": jobs}
    return Reproduction(_call(["reproduce"], names, options, progress))


def fsck(
    image: PathLike,
    *,
    recover: bool = False,
    era: str | None = None,
    offset: Number | None = None,
    partition: int | None = None,
) -> Result:
    """Checks an image of a file system; never writes.

    ``offset``: first byte of the file system. A clean image has ``ok``; a damaged one has exit code
    1 and its faults in the document.
    """
    options = {"recover": recover, "era": era, "offset": offset, "partition": partition}
    return Result(call(["fsck"], [image], options))


def inspect(
    images: PathLike | Iterable[PathLike],
    *,
    hash: bool = False,
    era: str | None = None,
    offset: Number | None = None,
    partition: int | None = None,
    zones: PathLike | None = None,
    oprw: bool = False,
) -> Result:
    """Lists the files of images, recovered in memory; never writes. Sizes are in bytes."""
    options = {
        "hash": hash, "era": era, "offset": offset, "partition": partition, "zones": zones,
        "oprw": oprw,
    }  # fmt: skip
    return Result(call(["inspect"], _paths(images), options))


def diff(
    run_a: Run | PathLike, run_b: Run | PathLike, *, actions: str | None = None,
    times: bool = False, events: bool = False,
) -> Result:  # fmt: skip
    """Compares two runs: stages, events, requests. Exit code 1 if they differ."""
    paths = [r.path if isinstance(r, Run) else r for r in (run_a, run_b)]
    return Result(call(["diff"], paths, {"actions": actions, "times": times, "events": events}))


def report(
    results: PathLike | Run | Experiment | Iterable[PathLike | Run | Experiment],
    *,
    out: PathLike | None = None,
    lang: str | None = None,
) -> Result:
    """Writes results as one HTML file (default ``report.html``). ``lang``: ``"en"``, ``"ko"``."""
    several = results if isinstance(results, (list, tuple, set)) else [results]
    paths = [r.path if isinstance(r, (Run, Experiment)) else r for r in several]
    return Result(call(["report"], paths, {"out": out, "lang": lang}))


def listing(what: str, name: PathLike | None = None) -> list[dict[str, Any]]:
    """A list of the command: ``fs``, ``devices``, ``workloads``, ``papers``, ``eras``, …"""
    document = call(["list"], [what] if name is None else [what, name]).document
    return list(document[what])


def file_systems(name: str | None = None) -> list[dict[str, Any]]:
    """File systems with their options and defaults."""
    return listing("fs", name)


def devices(name: PathLike | None = None) -> list[dict[str, Any]]:
    """Drives with their parameters; each number has its unit in its name, and its source."""
    return listing("devices", name)


def workloads(name: str | None = None) -> list[dict[str, Any]]:
    """Workloads with their options and defaults."""
    return listing("workloads", name)


_call = call
"""`call`, where a parameter has its name."""

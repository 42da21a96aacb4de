"""Experiments, crash campaigns and papers on the workers of a Dask cluster.

The scheduler is Dask's: this module cuts the work into tasks whose results do not depend on who
makes them, and keeps each under the hash of all that it depends on. A killed worker, a killed
scheduler or a second submission repeats nothing that was kept and changes no byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Union

from writepath import _native
from writepath._calls import PathLike, Progress, _tick, call, words_of
from writepath.errors import Interrupted, UsageError, error_of
from writepath.results import Experiment

Points = Union[PathLike, Mapping[str, Any]]

RETRIES = 20
"""How often a task is submitted again whose worker was killed."""


def sweep(
    points: Points,
    client: Any = None,
    *,
    seed: int | None = None,
    jobs: int | None = None,
    batch: int | None = None,
    out: PathLike | None = None,
    progress: Progress = None,
) -> Any:
    """Runs every point of an experiment. Returns a pandas.DataFrame: one row a run.

    ``points``: an experiment file (TOML), its text, or a dict of the same keys
    (``{"name": …, "workload": {…}, "sweep": {"fs.era": ["3.4", "6.12"]}}``).
    ``client``: a ``dask.distributed.Client``; without it, ``jobs`` threads of this process run.
    ``batch``: runs of a task (default: chosen from their number).
    ``out``: results folder (default ``results``); the folder of the result is
    ``frame.attrs["result"]``. The result has the bytes of ``writepath run FILE``.

    KeyboardInterrupt raises `Interrupted`; the same call continues with the runs that are kept.
    """
    with _file_of(points) as file:
        options = {"seed": seed, "jobs": jobs, "out": out}
        if client is not None:
            try:
                _make_all(client, file, seed, Path(out or "results"), batch, progress)
            except _RunFailed:
                # The command says why: it makes this run first.
                pass
            progress = None
        experiment = Experiment(call(["run"], [file], options, progress))
    frame = experiment.points
    frame.attrs["result"] = str(experiment.path)
    return frame


@contextmanager
def _file_of(points: Points) -> Iterator[Path]:
    """The experiment as a file. Paths in a text or dict begin at the current folder."""
    is_text = isinstance(points, str) and "\n" in points
    if not is_text and not isinstance(points, Mapping):
        yield Path(os.fspath(points))
        return
    text = points if isinstance(points, str) else toml_of(dict(points))  # type: ignore[arg-type]
    handle, name = tempfile.mkstemp(prefix=".writepath-", suffix=".toml", dir=".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        os.unlink(name)


def toml_of(points: dict[str, Any]) -> str:
    """A dict as an experiment file. ``schema`` may be left out; the order of keys is kept."""
    points = {"schema": "writepath/1", **points}
    tables = {k: v for k, v in points.items() if isinstance(v, Mapping)}
    plain = {k: v for k, v in points.items() if k not in tables and k != "claim"}
    lines = [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    for name, inner in tables.items():
        lines += [f"[{_key(name)}]", *(f"{_key(k)} = {_value(v)}" for k, v in inner.items())]
    for claim in points.get("claim", []):
        lines += ["[[claim]]", *(f"{_key(k)} = {_value(v)}" for k, v in claim.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "a").replace("-", "a").isalnum() else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


# --- the client's side ---------------------------------------------------------------------------


def _make_all(
    client: Any, file: Path, seed: int | None, out: Path, batch: int | None, progress: Progress
) -> None:
    """Makes all runs that are not kept on the workers of `client`, and keeps them below `out`."""
    try:
        sweep_ = _native.Sweep(file, out, seed)
    except ValueError as e:
        # The command tells it better.
        call(["check"], [file])
        raise UsageError(2, "experiment", str(e), "writepath check FILE") from None
    missing, tell = sweep_.missing(), _tick(progress)
    done = sweep_.runs - len(missing)
    if not missing:
        return
    size = batch or max(1, min(64, len(missing) // (32 * max(1, _threads(client)))))
    parts = [missing[n : n + size] for n in range(0, len(missing), size)]
    files = [("resolved.toml", sweep_.resolved.encode()), *sweep_.inputs()]
    digest = hashlib.sha256(repr(files).encode()).hexdigest()
    with _shared(out) as shared:
        bundle = client.submit(_same, (digest, files), key=f"writepath-{digest}", pure=True)

        def submit(part: list[tuple[int, int, str]]) -> Any:
            key = f"writepath-run-{part[0][2][:16]}-{uuid.uuid4().hex[:8]}"
            return client.submit(
                _make_runs, bundle, part, _native.program(), shared, key=key, pure=False
            )

        def take(made: list[tuple[str, bytes]]) -> None:
            nonlocal done
            for name, outcome in made:
                if outcome:
                    sweep_.keep(name, outcome)
            done += len(made)
            if tell:
                tell("sweep", done, sweep_.runs, "")

        def kept() -> str:
            return f"{done} of {sweep_.runs} runs are kept"

        _each(client, parts, submit, take, kept)


def _threads(client: Any) -> int:
    return sum(client.nthreads().values()) or 1


@contextmanager
def _shared(out: Path) -> Iterator[tuple[str, str]]:
    """The results folder, with a file by which a worker knows whether it sees the same folder."""
    runs = (out / "kept" / "runs").absolute()
    runs.mkdir(parents=True, exist_ok=True)
    token = runs / f".client-{uuid.uuid4().hex}"
    token.touch()
    try:
        yield str(out.absolute()), token.name
    finally:
        token.unlink(missing_ok=True)


def _each(
    client: Any,
    parts: Iterable[Any],
    submit: Callable[[Any], Any],
    take: Callable[[Any], None],
    kept: Callable[[], str],
) -> None:
    """Submits all parts and takes what comes back, in any order.

    A part whose worker was killed is submitted again. KeyboardInterrupt cancels what is under way.
    """
    import distributed

    # Its own annotations are not complete.
    as_completed: Any = distributed.as_completed
    lost = (distributed.KilledWorker, distributed.CancelledError)
    open_parts = {submit(part): (part, 0) for part in parts}
    waiting = as_completed(list(open_parts))
    try:
        for future in waiting:
            part, tries = open_parts.pop(future)
            try:
                made = future.result()
            except lost:
                if tries >= RETRIES:
                    raise
                again = submit(part)
                open_parts[again] = (part, tries + 1)
                waiting.add(again)
                continue
            take(made)
    except BaseException as e:
        client.cancel(list(open_parts))
        if isinstance(e, KeyboardInterrupt):
            message = f"interrupted: {kept()}"
            raise Interrupted(130, "interrupted", message, "the same call continues") from None
        raise


# --- the workers' side ---------------------------------------------------------------------------

_LOCK = threading.Lock()
_MAKERS: dict[str, tuple[_native.Maker, Any]] = {}


def _same(bundle: Any) -> Any:
    return bundle


def _maker(bundle: tuple[str, list[tuple[str, bytes]]], program: str) -> _native.Maker:
    """The experiment of a bundle, read once in this process."""
    digest, files = bundle
    with _LOCK:
        if digest not in _MAKERS:
            scratch = tempfile.TemporaryDirectory(prefix="writepath-sweep-", dir=_own_folder())
            for name, content in files:
                path = Path(scratch.name) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            file = Path(scratch.name) / "resolved.toml"
            _MAKERS[digest] = (_native.Maker(file, program), scratch)
        return _MAKERS[digest][0]


def _own_folder() -> str | None:
    """A folder that goes with the worker, however it ends."""
    try:
        from distributed import get_worker

        return str(get_worker().local_directory)
    except (ImportError, ValueError, AttributeError):
        return None


class _RunFailed(Exception):
    """A run cannot be made: on no worker."""


def _make_runs(
    bundle: tuple[str, list[tuple[str, bytes]]],
    part: list[tuple[int, int, str]],
    program: str,
    shared: tuple[str, str],
) -> list[tuple[str, bytes]]:
    """Makes the runs of a part; of those that this worker could keep itself only the names."""
    maker, made = _maker(bundle, program), []
    out, token = shared
    is_shared = (Path(out) / "kept" / "runs" / token).exists()
    for point, seed, name in part:
        try:
            outcome = maker.make(point, seed)
        except ValueError as e:
            raise _RunFailed(str(e)) from None
        if is_shared:
            _native.keep(out, name, outcome)
            outcome = b""
        made.append((name, outcome))
    return made


# --- crash campaigns -----------------------------------------------------------------------------


def explore(
    client: Any, words: list[Any], options: Mapping[str, object], progress: Progress
) -> None:
    """Explores the parts of a crash campaign, and writes its state file, which is then whole.

    Parts that are done lie beside the state file until all are there.
    """
    own = {k: v for k, v in options.items() if k not in ("workers", "budget", "minimise")}
    own = {k: v for k, v in own.items() if k not in ("reproducer", "state_file")}
    state_file = Path(str(options["state_file"]))
    if state_file.exists():
        return
    command = ["crash", "run", *map(str, words)]
    plan = _parts(command + words_of(own | {"state_file": state_file}), 1)
    first, end = plan.programs
    step = max(1, (end - first) // (8 * _threads(client)))
    plan = _parts(command + words_of(own | {"state_file": state_file}), step)
    ranges, tell = plan.parts(), _tick(progress)
    folder = state_file.with_name(state_file.name + ".parts")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {k: _read(v) for k, v in own.items() if k in ("known",) and v}
    digest = hashlib.sha256(repr((command, own, texts, _native.program())).encode()).hexdigest()

    def place(part: tuple[int, int]) -> Path:
        return folder / f"{digest[:16]}-{part[0]}-{part[1]}"

    left = [part for part in ranges if not place(part).exists()]
    done = len(ranges) - len(left)

    def submit(part: tuple[int, int]) -> Any:
        of_part = {**own, "first": part[0], "count": part[1] - part[0], "workers": 1, "minimise": 0}
        return client.submit(
            _explore_part, part, command + words_of(of_part), _native.program(), pure=False
        )

    def take(found: tuple[tuple[int, int], bytes]) -> None:
        nonlocal done
        part, state = found
        scratch = place(part).with_suffix(".new")
        scratch.write_bytes(state)
        scratch.rename(place(part))
        done += 1
        if tell:
            tell("crash", done, len(ranges), "parts")

    _each(client, left, submit, take, lambda: f"{done} of {len(ranges)} parts are kept")
    try:
        plan.join([place(part).read_bytes() for part in ranges], state_file)
    except ValueError as e:
        raise error_of(2, *e.args) from None
    for part in ranges:
        place(part).unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _read(path: object) -> str:
    return hashlib.sha256(Path(str(path)).read_bytes()).hexdigest()


def _parts(words: list[str], step: int) -> _native.CrashParts:
    try:
        return _native.CrashParts(words, step)
    except ValueError as e:
        raise error_of(2, *e.args) from None


def _explore_part(
    part: tuple[int, int], words: list[str], program: str
) -> tuple[tuple[int, int], bytes]:
    """Explores a part; its state file."""
    _same_program(program)
    with tempfile.TemporaryDirectory(prefix="writepath-crash-", dir=_own_folder()) as scratch:
        state = Path(scratch) / "state"
        called = _native.call([*words, f"--state-file={state}"])
        # A part of programs that this file system cannot run is an error only if all parts are.
        if called["error"] is not None and not state.exists():
            raise error_of(called["exit"], *called["error"])
        return part, state.read_bytes()


def _same_program(program: str) -> None:
    if _native.program() != program:
        message = "another build of writepath is installed on this worker"
        hint = "install the same wheel on the client and on every worker"
        raise UsageError(2, "build", message, hint)


# --- papers --------------------------------------------------------------------------------------


def reproduce_on(
    client: Any, papers: list[str], options: Mapping[str, object], progress: Progress
) -> None:
    """Runs each paper that is not kept as a task, and keeps what it found below ``out``."""
    out = Path(str(options.get("out") or "results"))
    try:
        missing = _native.missing_papers(["reproduce", *papers, *words_of(options)])
    except ValueError as e:
        raise error_of(2, *e.args) from None
    own = {k: v for k, v in options.items() if k not in ("out", "again", "jobs")}
    tell, done = _tick(progress), 0

    def submit(paper: str) -> Any:
        words = ["reproduce", paper, *words_of(own)]
        return client.submit(_reproduce_one, words, _native.program(), pure=False)

    def take(files: list[tuple[str, bytes]]) -> None:
        nonlocal done
        # The note that the results are whole comes last.
        for name, content in sorted(files, key=lambda f: f[0].startswith("kept/")):
            path = out / name
            if name.startswith("kept/"):
                note = json.loads(content)
                note["results"] = str(out / note["results"])
                content = json.dumps(note, indent=2).encode()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        done += 1
        if tell:
            tell("reproduce", done, len(missing), "papers")

    _each(client, missing, submit, take, lambda: f"{done} of {len(missing)} papers are kept")


def _reproduce_one(words: list[str], program: str) -> list[tuple[str, bytes]]:
    """Reproduces a paper; its files, with the note that it is done."""
    _same_program(program)
    with tempfile.TemporaryDirectory(prefix="writepath-paper-", dir=_own_folder()) as scratch:
        called = _native.call([*words, f"--out={scratch}"])
        if called["error"] is not None:
            raise error_of(called["exit"], *called["error"])
        root, files = Path(scratch), []
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            is_result = name.parts[0].startswith("reproduce-") or name.parts[0] == "kept"
            if not path.is_file() or path.is_symlink() or not is_result:
                continue
            content = path.read_bytes()
            if name.parts[0] == "kept":
                note = json.loads(content)
                note["results"] = str(Path(note["results"]).relative_to(root))
                content = json.dumps(note).encode()
            files.append((str(name), content))
        return files

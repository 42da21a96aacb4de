"""`writepath run FILE --dask ADDRESS`: the command's part that talks to a Dask cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from writepath import _native
from writepath.errors import Error
from writepath.sweeps import _make_all, _RunFailed


def main(words: list[str]) -> int:
    """Makes the runs on the cluster, then has the command write the result. Its exit code."""
    parser = argparse.ArgumentParser(prog="writepath run --dask")
    parser.add_argument("--address", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(words)
    rest = ["run", asked.file, "--out", asked.out]
    rest += [] if asked.seed is None else ["--seed", str(asked.seed)]
    command = ["writepath", *(["--json"] if asked.json else []), *rest]
    try:
        import distributed
    except ImportError:
        return _failed(asked.json, 3, "dask", "python3 has no package `distributed`",
                       "pip install 'writepath[dask]'")  # fmt: skip
    try:
        make_client: Any = distributed.Client
        client = make_client(asked.address, timeout=10)
    except (OSError, ValueError) as e:
        said = f"--dask {asked.address}: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
        return _failed(asked.json, 74, "host-io", said, "start a cluster: dask scheduler")
    with client:
        try:
            _make_all(client, Path(asked.file), asked.seed, Path(asked.out), None, _lines)
        except Error as e:
            # What is wrong with the file or with a run the command says itself.
            if e.exit_code in (130, 74):
                return _failed(asked.json, e.exit_code, e.code, e.message, e.hint)
        except _RunFailed:
            pass
    return _native.main(command)


def _lines(done: int, total: int, text: str) -> None:
    if done == total or done * 10 // total != (done - 1) * 10 // total:
        print(f"run: {done} of {total} on the cluster", file=sys.stderr)


def _failed(as_json: bool, exit_code: int, code: str, message: str, hint: str) -> int:
    import json

    if as_json:
        error = {"code": code, "message": message, "help": hint}
        print(json.dumps({"schema": "writepath.error/1", "ok": False, "error": error}, indent=2))
    else:
        print(f"error: {message}\nhelp: {hint}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Sweeps: one process, a Dask cluster, killed workers; always the same bytes."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import writepath as wp
from conftest import command, files
from writepath.sweeps import toml_of

POINTS: dict[str, Any] = {
    "name": "small",
    "repeat": 3,
    "device": {"preset": "fixed", "capacity_bytes": "64MiB"},
    "workload": {"name": "fsync-last", "n": 1, "watch": "0s"},
    "sweep": {"fs.era": ["3.4", "4.6", "6.12"], "workload.n": [3, 1, 2]},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as local:
        yield local


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    import distributed

    with distributed.Client(cluster) as client:
        yield client


def test_a_dict_is_an_experiment_file_in_its_order() -> None:
    text = toml_of(POINTS)
    assert text.startswith('schema = "writepath/1"\nname = "small"\n')
    frame = wp.sweep(POINTS, out="dict")
    assert len(frame) == 27 and list(frame["workload.n"][:9:3]) == ["3", "1", "2"]
    Path("small.toml").write_text(text)
    code, _, _ = command("run", "small.toml", "--out", "command")
    assert code == 0
    result = Path(frame.attrs["result"])
    assert files(result) == files(Path("command") / result.relative_to("dict"))
    assert not list(Path().glob(".writepath-*"))


def test_claims_have_verdicts() -> None:
    claim = {"id": "newer", "expr": "fsync_ns[6.12] > 0", "about": "it takes time"}
    points = {**POINTS, "repeat": 1, "claim": [claim]}
    Path("claims.toml").write_text(toml_of({**points, "sweep": {"fs.era": ["3.4", "6.12"]}}))
    experiment = wp.run("claims.toml")
    assert experiment.ok and [c["id"] for c in experiment.claims] == ["newer"]
    assert len(experiment.points) == 2


def test_what_is_wrong_is_told_with_its_line() -> None:
    with pytest.raises(wp.UsageError) as raised:
        wp.sweep({**POINTS, "device": {"preset": "fixed", "capacity_bytes": "64M"}})
    assert "did you mean `64MiB`?" in str(raised.value)


def test_a_cluster_gives_the_same_bytes_and_repeats_nothing(client: Any) -> None:
    alone = wp.sweep(POINTS, out="alone")
    told: list[int] = []
    spread = wp.sweep(POINTS, client, out="spread", batch=2, progress=lambda *f: told.append(f[0]))
    assert files(Path(alone.attrs["result"])) == files(Path(spread.attrs["result"]))
    assert told[-1] == 27 and told == sorted(told)
    told.clear()
    wp.sweep(POINTS, client, out="spread", progress=lambda *f: told.append(f[0]))
    assert told == [], "everything was kept"
    assert alone.equals(spread)


def test_the_command_runs_on_a_cluster(cluster: Any) -> None:
    Path("small.toml").write_text(toml_of(POINTS))
    address = cluster.scheduler_address
    code, text, said = command("run", "small.toml", "--out", "spread", "--dask", address)
    assert code == 0 and "27 of 27 on the cluster" in said, said
    assert command("run", "small.toml", "--out", "alone")[1].split("result")[0] in text
    assert files(Path("spread/small")) == files(Path("alone/small"))
    code, _, said = command("run", "small.toml", "--dask", "tcp://127.0.0.1:9")
    assert code == 74 and "help: start a cluster" in said


def test_a_run_that_cannot_be_is_the_error_of_the_command(client: Any) -> None:
    # mkfs refuses it, which only a run finds out.
    tiny = {"preset": "fixed", "capacity_bytes": "1088KiB"}
    Path("tiny.toml").write_text(toml_of({**POINTS, "device": tiny}))
    with pytest.raises(wp.Error) as alone:
        wp.sweep("tiny.toml", out="alone")
    with pytest.raises(wp.Error) as spread:
        wp.sweep("tiny.toml", client, out="spread")
    assert alone.value.exit_code == 3 and "mkfs" in alone.value.message
    assert str(alone.value) == str(spread.value) and alone.value.code == spread.value.code


def test_killed_workers_change_no_byte() -> None:
    distributed = pytest.importorskip("distributed")
    points = {**POINTS, "repeat": 40}
    alone = wp.sweep(points, out="alone")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        ended = threading.Event()
        killed = []

        def kill() -> None:
            dice = random.Random(1)
            while not ended.wait(0.4):
                pids = [w.pid for w in cluster.workers.values() if getattr(w, "pid", None)]
                if pids and len(killed) < 6:
                    killed.append(dice.choice(pids))
                    os.kill(killed[-1], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        spread = wp.sweep(points, client, out="spread", batch=1)
        ended.set()
        thread.join()
    assert killed, "the sweep was over before a worker was killed"
    assert files(Path(alone.attrs["result"])) == files(Path(spread.attrs["result"]))


def test_an_interrupt_keeps_what_was_done(client: Any) -> None:
    import _thread

    points = {**POINTS, "repeat": 200}

    def stop(done: int, total: int, text: str) -> None:
        if done > 100:
            _thread.interrupt_main()
            time.sleep(0.01)

    with pytest.raises(wp.Interrupted, match="runs are kept"):
        wp.sweep(points, client, batch=5, progress=stop)
    told: list[int] = []
    frame = wp.sweep(points, client, progress=lambda *f: told.append(f[0]))
    assert len(frame) == 1800 and told[0] > 100


def test_a_crash_campaign_on_a_cluster_is_that_of_one_process(client: Any) -> None:
    asked = {"fs": "ext4,nobarrier", "count": 100, "first": 3}
    alone = wp.crash("seq-2", **asked)
    spread = wp.crash("seq-2", **asked, client=client)
    assert alone.exit_code == spread.exit_code == 1
    times = {"seconds", "states_per_second", "session"}
    same = [{k: v for k, v in r.document.items() if k not in times} for r in (alone, spread)]
    assert same[0] == same[1] and alone.totals["raw_states"] > 1000
    assert not list(Path().iterdir())


def test_papers_are_tasks(client: Any) -> None:
    alone = wp.reproduce(["ext4-fsync", "inode-trim"], quick=True, out="alone")
    spread = wp.reproduce(["ext4-fsync", "inode-trim"], quick=True, out="spread", client=client)
    assert alone.claims == spread.claims and alone.exit_code == spread.exit_code
    results = [
        {name: data for name, data in files(Path(out)).items() if name.startswith("reproduce-")}
        for out in ("alone", "spread")
    ]
    assert results[0] == results[1] and results[0]

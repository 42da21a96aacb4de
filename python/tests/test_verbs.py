"""The verbs: the command's words, results and errors."""

import inspect
import json
import pickle
import threading
import time
from pathlib import Path

import pytest
import writepath as wp
from conftest import SMALL, command, files

OLD = {"fs": "ext4,era=3.4", "workload": "fsync-last,n=10,case=extend"}


def test_a_run_has_the_bytes_of_the_command() -> None:
    run = wp.run(**OLD, out="here")
    code, _, _ = command("run", "--fs", OLD["fs"], "--workload", OLD["workload"], "--out", "there")
    assert code == 0 and run.ok
    other = Path("there") / run.path.relative_to("here")
    assert files(run.path) == files(other) and "events.parquet" in files(other)
    assert run.metrics["fsync_ns"] == 2224108 and run.metrics.units["fsync_ns"] == "ns"
    assert run.device and run.fs and "2,224,108" in run._repr_html_()


def test_events_are_tables_and_fsyncs_have_their_stages() -> None:
    run = wp.run(**OLD)
    events = run.events
    assert events.num_rows == run.document["events"] > 100
    frame = run.events_pandas()
    issued = frame[(frame.event == "block") & (frame.action == "D")]
    assert len(issued) > 0 and (issued.rwbs == "FF").sum() + issued.rwbs.str.contains("F").sum() > 0
    syncs = run.fsyncs
    assert len(syncs) == 1
    stages = syncs.iloc[0, 6:]
    assert stages.sum() == syncs.total_ns[0] == run.metrics["fsync_ns"]
    assert syncs["wait: pre-flush"][0] == 1012960
    explained = run.explain()
    assert explained.total_ns == syncs.total_ns[0] and "<svg" in explained._repr_html_()
    assert set(explained.stages.stage) == set(syncs.columns[6:])
    assert wp.explain(run.path, summary=True).document["calls"] == 1
    assert wp.load("results").metrics == run.metrics


def test_a_figure_is_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = wp.run(**OLD).plot()
    assert len(axes.patches) >= 5


def test_fewer_events_do_not_change_the_numbers() -> None:
    whole = wp.run(**OLD)
    for which in ("none", "calls", "requests"):
        run = wp.run(**OLD, events=which)
        assert run.metrics == whole.metrics and run.path != whole.path
        if which == "none":
            with pytest.raises(wp.UsageError, match="no events"):
                _ = run.events
            continue
        kinds = set(run.events_pandas().event)
        assert "enter" in kinds and ("block" in kinds) == (which == "requests")


def test_an_error_is_the_one_of_the_command() -> None:
    cases = [
        (["run", "--fs", "ext5"], lambda: wp.run(fs="ext5")),
        (["run", "--device", "ssd-128,nonsense=1"], lambda: wp.run(device="ssd-128,nonsense=1")),
        (["explain", "nowhere"], lambda: wp.explain("nowhere")),
        (["fsck", "nowhere.img"], lambda: wp.fsck("nowhere.img")),
        (["crash", "run", "nonsense"], lambda: wp.crash("nonsense")),
        (["run", "--max-events", "x"], lambda: wp.run(max_events="x")),  # type: ignore[call-overload]
    ]
    for words, function in cases:
        code, out, _ = command("--json", *words)
        said = json.loads(out)["error"]
        with pytest.raises(wp.Error) as raised:
            function()
        error = raised.value
        assert error.exit_code == code and error.code == said["code"], words
        assert error.message.replace("=", " ") == said["message"].replace("=", " "), words
        assert error.hint == said["help"], words
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and type(again) is type(error)
    with pytest.raises(wp.HostIOError):
        wp.fsck("nowhere.img")


def test_every_option_of_the_command_is_an_argument() -> None:
    left_out = {
        "run": {"no-events", "record", "verify", "dask"},
        "explain": {"all", "top", "flow", "to", "out"},
        "crash run": {
            "record", "calls", "no-direct", "interleavings", "concurrent-sync-us", "without",
            "atomic", "trimmed", "recovery-unordered", "no-prune", "after-acks", "accept",
            "check-image", "check-timeout", "check-dir",
        },
        "diff": {
            "fs", "device", "workload", "elevator", "cpu", "seed", "partition-start",
            "partition-size", "image",
        },
    }  # fmt: skip
    functions = {
        "run": wp.run, "explain": wp.explain, "crash run": wp.crash, "replay": wp.replay,
        "calibrate": wp.calibrate, "reproduce": wp.reproduce, "fsck": wp.fsck,
        "inspect": wp.inspect, "diff": wp.diff, "report": wp.report,
    }  # fmt: skip
    verbs = {v["verb"]: v for v in wp.listing("verbs")}
    for verb, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        own = {p.name.rstrip("_").replace("_", "-") for p in parameters if p.kind is p.KEYWORD_ONLY}
        own -= {"progress", "client"}
        there = {a["long"] for a in verbs[verb]["arguments"] if a["long"]}
        assert own == there - left_out.get(verb, set()), verb


def test_lists_name_what_there_is() -> None:
    assert {"ext4", "f2fs", "btrfs", "nilfs2"} <= {fs["name"] for fs in wp.file_systems()}
    assert any(device["name"] == "ssd-128" for device in wp.devices())
    assert any(workload["name"] == "varmail" for workload in wp.workloads())


def test_progress_is_told_and_a_bar_is_moved() -> None:
    tqdm = pytest.importorskip("tqdm")
    told: list[tuple[int, int, str]] = []
    wp.crash("seq-1", count=64, progress=lambda *far: told.append(far))
    assert told and told[-1][0] <= told[-1][1] == 64
    with tqdm.tqdm(disable=False, file=open("bar", "w")) as bar:  # noqa: SIM115
        wp.crash("seq-1", count=64, progress=bar)
    assert bar.total == 64


def test_an_interrupt_stops_a_run_and_others_go_on() -> None:
    import _thread

    long = "varmail,seconds=1000000"
    threading.Timer(1.0, _thread.interrupt_main).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        wp.run(workload=long, events="none")
    assert isinstance(raised.value, wp.Interrupted) and raised.value.exit_code == 130
    assert time.monotonic() - began < 30
    assert wp.run(**OLD).ok


def test_the_lock_of_the_interpreter_is_free_while_a_verb_runs() -> None:
    turns = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    wp.crash("seq-1", count=96, workers=1)
    ended.set()
    thread.join()
    assert turns > 20


def test_what_a_callback_raises_reaches_the_caller() -> None:
    def refuse(done: int, total: int, text: str) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        wp.crash("seq-2", progress=refuse)


def test_the_command_of_the_package_runs_programs_of_the_host() -> None:
    code, text, said = command("run", "--", "sh", "-c", "echo hi > f; sync f")
    if "no private mount" in said or "/dev/fuse" in said:
        pytest.skip(f"FUSE: {said.strip()}")
    assert code == 0 and "result" in text, said


def test_a_broken_rule_is_an_answer() -> None:
    program = "open 0 a rw,creat; pwrite 0 4096 0 1; fsync 0"
    crash = wp.crash(program, fs="ext4,nobarrier")
    assert crash.exit_code == 1 and not crash.ok and crash.failures
    assert crash.totals["raw_states"] > 0
    assert wp.crash(program).ok


def test_calibration_inspection_and_reports(here: Path) -> None:
    points = ["op,bs,qd,iops,lat_us"]
    points += [f"randwrite,{4 << n}k,1,{4000 >> n},{250 << n}" for n in range(5)]
    points += [f"randread,4k,{1 << n},{8000 * (1 << n)},125" for n in range(4)]
    Path("drive.csv").write_text("\n".join(points) + "\n")
    fitted = wp.calibrate("drive.csv", class_="plain", out="my.toml")
    assert fitted.document["fitted_loads"] > 0 and Path("my.toml").exists()
    run = wp.run(device=SMALL, workload="fsync-last,n=2,watch=1", save_image="disk.img",
                 partition_start=0)  # fmt: skip
    assert wp.fsck("disk.img").ok
    listed = wp.inspect("disk.img", hash=True)
    assert listed.ok and "f_1" in listed.text
    assert wp.report(run, out="page.html").ok and Path("page.html").stat().st_size > 1000
    assert wp.diff(run, run).ok

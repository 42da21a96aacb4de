#!/usr/bin/env python3
"""States of a SQLite database a second: LazyFS beside `writepath crash`, in one run on this host.

usage: lazyfs.py LAZYFS WRITEPATH [N]

LAZYFS is the program that LazyFS's build makes. A state of LazyFS: a transaction, `lazyfs::clear-cache`, which drops
what was not synced, an open with an integrity check. A state of Writepath: the same check in a distinct recovered
tree of N transactions (apps/sqlite). Both have journal_mode=DELETE and synchronous=EXTRA, and data in memory (tmpfs).
"""
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import time

CONFIG = """
[faults]
fifo_path="{dir}/faults"
fifo_path_completed="{dir}/done"
[cache]
apply_eviction=false
[cache.simple]
custom_size="0.5GB"
blocks_per_page=1
[filesystem]
log_all_operations=false
logfile="{dir}/log"
"""
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


def lazyfs(program, count, scratch):
    for name in ("mount", "below"):
        os.mkdir(f"{scratch}/{name}")
    config = f"{scratch}/config.toml"
    with open(config, "w") as file:
        file.write(CONFIG.format(dir=scratch))
    options = ["-o", "allow_other", "-o", "modules=subdir", "-o", f"subdir={scratch}/below", "-f"]
    server = subprocess.Popen(
        [program, f"{scratch}/mount", "--config-path", config, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not os.path.ismount(f"{scratch}/mount") or not os.path.exists(f"{scratch}/done"):
        if server.poll() is not None:
            sys.exit(f"{program}: exit {server.returncode}")
        time.sleep(0.05)
    done = os.open(f"{scratch}/done", os.O_RDWR)
    path = f"{scratch}/mount/app.db"
    begin = time.monotonic()
    for n in range(count):
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA synchronous=EXTRA")
        db.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)")
        db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 100))
        with open(f"{scratch}/faults", "w") as faults:
            faults.write("lazyfs::clear-cache\n")
        while b"finished" not in os.read(done, 4096):
            pass
        del db
        db = sqlite3.connect(path)
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            sys.exit(f"LazyFS: damage after transaction {n}")
        if db.execute("SELECT count(*) FROM t").fetchone() != (n + 1,):
            sys.exit(f"LazyFS: transaction {n} is lost")
        db.close()
    seconds = time.monotonic() - begin
    subprocess.run(["umount", "-l", f"{scratch}/mount"], check=False)
    server.terminate()
    server.wait()
    return count, seconds


def writepath(program, count, scratch):
    check = f"{REPOSITORY}/apps/sqlite/check"
    command = [program, "crash", "--json", "--workers", "1", "--device", "ssd-128"]
    command += ["--check-dir", scratch, "--checker", check, "--"]
    command += [f"{REPOSITORY}/apps/sqlite/run", "delete", "extra", str(count)]
    begin = time.monotonic()
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    seconds = time.monotonic() - begin
    last = json.loads(run.stdout.splitlines()[-1])
    if run.returncode != 0:
        sys.exit(f"writepath: exit {run.returncode}: {last}")
    return last["check_cmd"]["runs"], last["totals"]["raw_states"], seconds


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    count = int(sys.argv[3]) if len(sys.argv) == 4 else 300
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        os.mkdir(f"{scratch}/lazyfs")
        os.mkdir(f"{scratch}/trees")
        checked, seconds = lazyfs(sys.argv[1], count, f"{scratch}/lazyfs")
        print(f"LazyFS     {checked:>6} states checked in {seconds:5.1f} s: {checked / seconds:6.0f}/s")
        trees, states, seconds = writepath(sys.argv[2], count, f"{scratch}/trees")
        print(
            f"writepath  {trees:>6} distinct trees checked in {seconds:5.1f} s: {trees / seconds:6.0f}/s "
            f"(of {states} states, one thread, with recording, recovery and fsck)"
        )


main()

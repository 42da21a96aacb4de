"""What the programs here and their checkers share."""
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MAY_BE_LOST = "lost" in sys.argv[1:]
# A server that refuses root runs as this user of a user namespace, which is root on its files.
NOBODY = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
# A kernel without user namespaces, as that of a guest, has root become that user.
HAS_NAMESPACES = os.path.exists("/proc/self/ns/user")
if not HAS_NAMESPACES:
    NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# Who owns that user's files.
OWNER = 0 if HAS_NAMESPACES else 65534
# After a power failure no process and no shared memory of before is there: `unshare` sees to it.
REBOOTED = ["--ipc", "--pid", "--fork", "--kill-child"] if HAS_NAMESPACES else []


class Wrong(Exception):
    """What is wrong with a tree."""


class Acks:
    """Tells the world what must survive every power failure from now on."""

    def __init__(self):
        self.file = open(os.environ["WRITEPATH_ACK"], "w", buffering=1)

    def __call__(self, n):
        self.file.write(f"{n}\n")


def last_acked(path):
    """The last number that was acknowledged; -1: none."""
    with open(path) as lines:
        return max((int(line) for line in lines), default=-1)


def compare(found, last):
    """Errors: transaction `last` was acknowledged, and only those up to `found` are there."""
    if found < last and not MAY_BE_LOST:
        raise Wrong(f"transaction {last} was acknowledged, and the last one there is {found}")


def answer(check):
    """Asks `check(tree, last)` about each tree of standard input; it raises what is wrong."""
    for line in sys.stdin:
        tree, acked = line.rstrip("\n").split("\t")[:2]
        try:
            check(tree, last_acked(acked))
            reason = "ok"
        except Wrong as wrong:
            reason = f"bad {' '.join(str(wrong).split())}"
        print(reason, flush=True)


def fsync(path):
    """Makes a file or directory durable."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def fsync_all(top):
    """Makes all of a directory tree durable, with its name."""
    for root, dirs, files in os.walk(top, topdown=False):
        for path in [os.path.join(root, name) for name in files] + [root]:
            if not os.path.islink(path):
                fsync(path)
    fsync(os.path.dirname(os.path.abspath(top)))


def copy_durably(source, to):
    """Copies a directory tree, and makes it durable."""
    shutil.copytree(source, to, symlinks=True)
    if os.geteuid() == 0:
        own(to, OWNER)
    fsync_all(to)


def own(tree, user):
    """Gives a directory tree to a user, if it is another's. Root of this host is NOBODY in its namespace."""
    for folder, _, files in os.walk(tree):
        for path in [folder, *(os.path.join(folder, name) for name in files)]:
            if os.lstat(path).st_uid != user:
                os.chown(path, user, user, follow_symlinks=False)


class Scratch:
    """A directory outside of the file system under test: sockets, logs."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="writepath-app-", dir="/dev/shm")
        os.chmod(self.dir, 0o777)
        return self.dir

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)


class Server:
    """A server that runs until the end of a block. It ends as in a power failure: at once."""

    def __init__(self, argv, log, is_up, patience=60):
        self.argv, self.log, self.is_up, self.patience = argv, log, is_up, patience

    def __enter__(self):
        # Whatever the server starts inherits one end: the other one ends with the last of them.
        self.alive, alive = os.pipe()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=[alive],
            )
        os.close(alive)
        end = time.monotonic() + self.patience
        while not self.is_up():
            if self.process.poll() is not None:
                self.__exit__()
                raise Wrong(f"the server does not start: {self.why()}")
            if time.monotonic() > end:
                self.__exit__()
                raise Wrong(f"the server is not up in {self.patience} s: {self.why()}")
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # A process that still dies would write into the next tree.
        select.select([self.alive], [], [], self.patience)
        os.close(self.alive)

    def stop(self, by=signal.SIGTERM):
        """Ends it cleanly."""
        self.process.send_signal(by)
        self.process.wait()

    def why(self):
        """The first line of the log that tells of an error, or the last one."""
        with open(self.log, errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        words = ("PANIC", "FATAL", "[ERROR]", "panic:", " C | ", "Bad file format")
        bad = [line for line in lines if any(word in line for word in words)]
        return (bad or lines[-1:] or ["no output"])[0]

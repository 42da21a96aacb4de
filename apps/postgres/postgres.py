"""As much of PostgreSQL as the two programs here need: a new cluster, a server, a session."""
import glob
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app

# Debian keeps the server's programs out of the PATH.
_there = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))]
BIN = os.path.dirname(next(filter(None, reversed(_there)), ""))
USER = app.NOBODY if os.geteuid() == 0 else []
ROWS = 200


def new_cluster(to):
    """A cluster with page checksums and small segments of the log, outside of the file system under test."""
    argv = [*USER, f"{BIN}/initdb", "-D", to, "--no-sync", "--data-checksums", "--wal-segsize=1"]
    argv += ["--encoding=UTF8", "--locale=C", "--username=app", "--auth=trust"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


class server(app.Server):
    """A server on a cluster, reached by a Unix socket in `scratch` alone."""

    def __init__(self, data, scratch, *settings, reboot=()):
        self.scratch = scratch
        user = [*USER, *reboot] if USER or not reboot else ["unshare", "--user", "--map-root-user", *reboot]
        argv = [*user, f"{BIN}/postgres", "-D", os.path.abspath(data), "-k", scratch, "-h", ""]
        for setting in ("shared_buffers=1MB", "max_connections=8", "dynamic_shared_memory_type=mmap", *settings):
            argv += ["-c", setting]
        super().__init__(argv, os.path.join(scratch, "log"), self.accepts)

    def accepts(self):
        with open(self.log, errors="replace") as log:
            return "ready to accept connections" in log.read()


class Session:
    """psql that stays up."""

    def __init__(self, scratch):
        argv = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", scratch, "-U", "app", "-d", "postgres"]
        pipe = subprocess.PIPE
        self.psql = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.psql.kill()
        self.psql.communicate()

    def run(self, sql):
        """The lines that a statement answers. Errors: `app.Wrong` with what the server says."""
        try:
            self.psql.stdin.write(f"{sql};\n\\echo = done\n")
            self.psql.stdin.flush()
        except BrokenPipeError:
            pass
        lines = []
        for line in self.psql.stdout:
            if line == "= done\n":
                return lines
            lines.append(line.rstrip("\n"))
        # Without the name of the socket before it.
        said = [line[line.index(word):] for word in ("ERROR", "FATAL", "PANIC") for line in lines if word in line]
        raise app.Wrong((said or lines[-1:] or ["psql ended"])[0])

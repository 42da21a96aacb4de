"""As much of MariaDB as the two programs here need: a new data directory, a server, a session."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app

ROWS = 300
PROGRAM = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
SMALL = [
    "--innodb-data-file-path=ibdata1:4M:autoextend", "--innodb-autoextend-increment=1",
    "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", "--innodb-temp-data-file-path=ibtmp1:1M:autoextend",
    "--innodb-buffer-pool-dump-at-shutdown=0", "--innodb-buffer-pool-load-at-startup=0",
]


def new_data(to):
    """A new data directory, outside of the file system under test."""
    argv = ["mariadb-install-db", "--no-defaults", f"--datadir={to}", "--skip-test-db", "--user=root"]
    argv += ["--skip-name-resolve", "--auth-root-authentication-method=normal", *SMALL]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class server(app.Server):
    """A server on a data directory, reached by a Unix socket in `scratch` alone."""

    def __init__(self, data, scratch, *options):
        self.socket = os.path.join(scratch, "socket")
        argv = [PROGRAM, "--no-defaults", f"--datadir={os.path.abspath(data)}", f"--socket={self.socket}"]
        argv += ["--skip-networking", "--skip-grant-tables", "--user=root", f"--tmpdir={scratch}"]
        argv += [f"--pid-file={scratch}/pid", *SMALL, *options]
        super().__init__(argv, os.path.join(scratch, "log"), self.accepts)

    def accepts(self):
        with open(self.log, errors="replace") as log:
            return "ready for connections" in log.read()

    def shutdown(self, session):
        """Ends it cleanly."""
        session.client.communicate("SHUTDOWN;\n")
        self.process.wait()


class Session:
    """The client `mariadb` that stays up."""

    def __init__(self, server):
        argv = ["mariadb", "--no-defaults", "-N", "-B", "--unbuffered", f"--socket={server.socket}"]
        pipe = subprocess.PIPE
        self.client = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.kill()
        self.client.communicate()

    def run(self, sql):
        """The lines that statements answer. Errors: `app.Wrong` with what the server says."""
        try:
            self.client.stdin.write(f"{sql};\nSELECT '= done';\n")
            self.client.stdin.flush()
        except BrokenPipeError:
            pass
        lines = []
        for line in self.client.stdout:
            if line == "= done\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise app.Wrong((lines or ["the client ended"])[-1])

"""As much of Redis as the two programs here need: its server, and a client on a Unix socket."""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        """A command's reply. Errors: `app.Wrong` with what the server says."""
        parts = [str(word).encode() for word in words]
        text = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        self.socket.sendall(b"*%d\r\n%s" % (len(parts), text))
        return self.reply()

    def reply(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind in (b"", b"-"):
            raise app.Wrong(f"Redis: {rest.decode(errors='replace') or 'the connection ended'}")
        return rest


class server(app.Server):
    """A server on a directory, and a client of it."""

    def __init__(self, data, scratch, *options):
        self.path = os.path.join(scratch, "socket")
        argv = ["redis-server", "--dir", os.path.abspath(data), "--unixsocket", self.path]
        argv += ["--port", "0", "--save", "", "--appendonly", "yes", *options]
        super().__init__(argv, os.path.join(scratch, "log"), self.connect)

    def connect(self):
        try:
            self.client = Client(self.path)
            self.client.call("PING")
            return True
        except (OSError, app.Wrong):
            # Not yet there, or it still loads.
            return False

    def call(self, *words):
        return self.client.call(*words)

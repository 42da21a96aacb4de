"""As much of etcd as the two programs here need: its server, in a network of its own, and a client."""
import base64
import ctypes
import fcntl
import http.client
import json
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app

CLONE_NEWNET = 0x40000000


def own_network():
    """Leaves this process, and what it starts, nothing but a loopback device of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    with socket.socket() as any_socket:
        up = struct.pack("16sh14x", b"lo", 0x49)
        fcntl.ioctl(any_socket, 0x8914, up)


class server(app.Server):
    """A server of one member, and a client of it."""

    def __init__(self, data, scratch, *options, patience=60):
        argv = ["etcd", "--data-dir", os.path.abspath(data), "--heartbeat-interval", "10"]
        argv += ["--election-timeout", "50", "--log-level", "error", *options]
        super().__init__(argv, os.path.join(scratch, "log"), self.answers, patience)

    def answers(self):
        try:
            self.client = http.client.HTTPConnection("127.0.0.1", 2379, timeout=2)
            self.call("kv/range", key="x")
            self.client.sock.settimeout(30)
            return True
        except (OSError, http.client.HTTPException, app.Wrong):
            return False

    def call(self, what, **words):
        """A request's answer; keys and values are text. Errors: `app.Wrong` with what the server says."""
        body = {k: base64.b64encode(v.encode()).decode() if isinstance(v, str) else v for k, v in words.items()}
        self.client.request("POST", f"/v3/{what}", json.dumps(body))
        answer = json.loads(self.client.getresponse().read())
        if "error" in answer:
            raise app.Wrong(f"etcd: {answer['error']}")
        return answer

    def all(self):
        """All keys with their values."""
        found = self.call("kv/range", key="\0", range_end="\0").get("kvs", [])
        text = lambda word: base64.b64decode(word).decode()
        return {text(kv["key"]): text(kv["value"]) for kv in found}

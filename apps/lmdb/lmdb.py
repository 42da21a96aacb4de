"""As much of LMDB as the two programs here need, over the system's liblmdb."""
import ctypes
import ctypes.util

NOSYNC, WRITEMAP, NOMETASYNC, MAPASYNC, RDONLY = 0x10000, 0x80000, 0x40000, 0x100000, 0x20000
FLAGS = {"nosync": NOSYNC, "writemap": WRITEMAP, "nometasync": NOMETASYNC, "mapasync": MAPASYNC}
CREATE = 0x40000

_lib = ctypes.CDLL(ctypes.util.find_library("lmdb") or "liblmdb.so.0")
_lib.mdb_strerror.restype = ctypes.c_char_p
_p = ctypes.c_void_p


class Val(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", _p)]

    @classmethod
    def of(cls, text):
        value = cls()
        value.kept = ctypes.create_string_buffer(text, len(text))
        value.size, value.data = len(text), ctypes.addressof(value.kept)
        return value

    def text(self):
        return ctypes.string_at(self.data, self.size)


class Error(Exception):
    pass


def call(name, *args):
    code = getattr(_lib, name)(*args)
    if code:
        raise Error(f"{name}: {_lib.mdb_strerror(code).decode()}")


class Env:
    """An environment in a directory, with one table."""

    def __init__(self, path, flags=0, size=1 << 20):
        self.env = _p()
        call("mdb_env_create", ctypes.byref(self.env))
        call("mdb_env_set_mapsize", self.env, ctypes.c_size_t(size))
        try:
            call("mdb_env_open", self.env, path.encode(), ctypes.c_uint(flags), ctypes.c_uint(0o644))
        except Error:
            self.close()
            raise

    def close(self):
        _lib.mdb_env_close(self.env)

    def begin(self, read_only=False):
        txn = _p()
        call("mdb_txn_begin", self.env, None, ctypes.c_uint(RDONLY if read_only else 0), ctypes.byref(txn))
        dbi = ctypes.c_uint()
        call("mdb_dbi_open", txn, None, ctypes.c_uint(0 if read_only else CREATE), ctypes.byref(dbi))
        return txn, dbi

    def put(self, txn, dbi, key, value):
        call("mdb_put", txn, dbi, ctypes.byref(Val.of(key)), ctypes.byref(Val.of(value)), ctypes.c_uint(0))

    def commit(self, txn):
        call("mdb_txn_commit", txn)

    def abort(self, txn):
        _lib.mdb_txn_abort(txn)

    def items(self):
        txn, dbi = self.begin(read_only=True)
        try:
            cursor = _p()
            call("mdb_cursor_open", txn, dbi, ctypes.byref(cursor))
            key, value = Val(), Val()
            while _lib.mdb_cursor_get(cursor, ctypes.byref(key), ctypes.byref(value), 8) == 0:
                yield key.text(), value.text()
            _lib.mdb_cursor_close(cursor)
        finally:
            self.abort(txn)

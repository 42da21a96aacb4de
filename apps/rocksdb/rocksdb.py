"""As much of RocksDB as the two programs here need, over its C interface (Debian: librocksdb)."""
import ctypes
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import app

_found = sorted(glob.glob("/usr/lib/*/librocksdb.so.*"))
_lib = ctypes.CDLL(_found[0] if _found else "librocksdb.so")
_p, _size, _error = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_char_p)


def _call(name, result, *arguments):
    function = getattr(_lib, f"rocksdb_{name}")
    function.restype, function.argtypes = result, arguments
    return function


_options_create = _call("options_create", _p)
_set_create = _call("options_set_create_if_missing", None, _p, ctypes.c_ubyte)
_set_buffer = _call("options_set_write_buffer_size", None, _p, _size)
_set_paranoid = _call("options_set_paranoid_checks", None, _p, ctypes.c_ubyte)
_open = _call("open", _p, _p, ctypes.c_char_p, _error)
_close = _call("close", None, _p)
_write_options = _call("writeoptions_create", _p)
_set_sync = _call("writeoptions_set_sync", None, _p, ctypes.c_ubyte)
_batch_create = _call("writebatch_create", _p)
_batch_destroy = _call("writebatch_destroy", None, _p)
_batch_put = _call("writebatch_put", None, _p, ctypes.c_char_p, _size, ctypes.c_char_p, _size)
_write = _call("write", None, _p, _p, _p, _error)
_read_options = _call("readoptions_create", _p)
_iterator = _call("create_iterator", _p, _p, _p)
_iterator_destroy = _call("iter_destroy", None, _p)
_first = _call("iter_seek_to_first", None, _p)
_is_valid = _call("iter_valid", ctypes.c_ubyte, _p)
_next = _call("iter_next", None, _p)
_key = _call("iter_key", _p, _p, ctypes.POINTER(_size))
_value = _call("iter_value", _p, _p, ctypes.POINTER(_size))
_iterator_error = _call("iter_get_error", None, _p, _error)


def _checked(function, *arguments):
    error = ctypes.c_char_p()
    result = function(*arguments, ctypes.byref(error))
    if error.value:
        raise app.Wrong(error.value.decode(errors="replace"))
    return result


class Db:
    """A database with small memtables, so that tables are written and the log is changed often."""

    def __init__(self, path, create=False):
        options = _options_create()
        _set_create(options, create)
        _set_buffer(options, 64 << 10)
        _set_paranoid(options, 1)
        self.db = _checked(_open, options, path.encode())

    def close(self):
        _close(self.db)

    def put(self, items, sync):
        """Writes all of `items` or nothing."""
        options, batch = _write_options(), _batch_create()
        _set_sync(options, sync)
        for key, value in items.items():
            _batch_put(batch, key, len(key), value, len(value))
        _checked(_write, self.db, options, batch)
        _batch_destroy(batch)

    def items(self):
        iterator, length = _iterator(self.db, _read_options()), _size()
        _first(iterator)
        found = {}
        text = lambda get: ctypes.string_at(get(iterator, ctypes.byref(length)), length.value)
        while _is_valid(iterator):
            key = text(_key)
            found[key] = text(_value)
            _next(iterator)
        _checked(_iterator_error, iterator)
        _iterator_destroy(iterator)
        return found

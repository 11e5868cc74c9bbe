"""Arrays between pages that nobody may touch: one byte read or written beyond them ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy that ends where a page ends, or begins where one begins; at_end, it is aligned to its elements alone."""
    pages = -(-max(array.nbytes, 1) // _PAGE)
    memory = mmap.mmap(-1, (pages + 2) * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        if _libc.mprotect(ctypes.c_void_p(address + page * _PAGE), ctypes.c_size_t(_PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = _PAGE * (pages + 1) - array.nbytes if at_end else _PAGE
    copy = np.frombuffer(memory, np.uint8, array.nbytes, begin).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

"""Keeps freed memory in the process, because every update allocates and frees the same large tensors.

By default glibc returns large blocks to the system at once, so each update pays for some thousand page faults that
bring fresh, zeroed 4 KiB pages, and then for address lookups: a seventh to a fifth of its time (docs/performance.md).
"""

from __future__ import annotations

import ctypes
from functools import cache

RESERVE = 4 << 30  # bytes of address space; memory is taken only as it is touched
HUGE_PAGE = 1 << 21
M_TRIM_THRESHOLD, M_MMAP_MAX, MADV_HUGEPAGE = -1, -4, 14  # malloc.h and sys/mman.h of Linux


@cache  # once is enough for a process
def keep_freed_memory() -> None:
    """Makes the heap of this process keep freed memory, in huge pages; does nothing without glibc."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(RESERVE)
    if block:  # if not, the address space is limited, and the heap stays as it is
        start = -(-block // HUGE_PAGE) * HUGE_PAGE
        libc.madvise(start, RESERVE - HUGE_PAGE, MADV_HUGEPAGE)
        libc.free(block)

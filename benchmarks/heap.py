"""Memory that stays with the process: an update allocates and frees the same large tensors each time.

By default glibc gives large blocks back to the system at once, so each update pays some thousand page faults for
fresh, zeroed 4 KiB pages, and then for looking them up: a seventh to a fifth of its time (docs/performance.md).
"""

from __future__ import annotations

import ctypes

RESERVE = 4 << 30  # bytes of address space; memory is taken only as it is touched
HUGE_PAGE = 1 << 21
M_TRIM_THRESHOLD, M_MMAP_MAX, MADV_HUGEPAGE = -1, -4, 14  # malloc.h and sys/mman.h of Linux


def keep_freed_memory() -> None:
    """Lets the heap of this process keep what is freed, in huge pages; without glibc it does nothing."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(RESERVE)
    if block:  # else the address space is limited: what is there stays as it is
        start = -(-block // HUGE_PAGE) * HUGE_PAGE
        libc.madvise(start, RESERVE - HUGE_PAGE, MADV_HUGEPAGE)
        libc.free(block)

"""Arrays larger than RAM: numpy arrays whose pages are kept within a limit, the rest of them in a swap file.

    with outpage.Pager(limit="2G") as pager:
        a = pager.zeros((1_000_000, 1000))   # 8 GB
        a[:] = 1
        print(a.sum(), pager.stats())

An array is memory of the pager's, in the form of any numpy array, as long as it or a view of it lives. What numpy makes of it (`a + 1`, `a.copy()`) is
ordinary memory: name an array of the pager's as `out`.

Errors are `OutpageError` and its kinds. A touch of a page whose bytes are lost is SIGBUS. A forked child (multiprocessing's `fork`) has no part of an array.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import numpy as np

from ._outpage import (
    BoundsError,
    EndedError,
    ForkedError,
    LostError,
    OutpageError,
    PinnedError,
    SettingError,
    SwapError,
    UserfaultfdError,
    parse_size,
)
from ._outpage import Pager as _Pager
from ._outpage import Region as _Region
from ._outpage import Subscription as _Subscription

__all__ = [
    "ArrayStats",
    "BoundsError",
    "EndedError",
    "ForkedError",
    "GrowingArray",
    "LostError",
    "OutpageError",
    "Pager",
    "PinnedError",
    "Residency",
    "SettingError",
    "Stats",
    "Subscription",
    "SwapError",
    "UserfaultfdError",
    "parse_size",
    "to_arrow",
]
__version__ = "0.1.0"

PAGE_BYTES = 4096

Shape = Union[int, Sequence[int]]

# By the numbers of `outpage.h`.
_ADVICE = {"normal": 0, "sequential": 1, "random": 2, "will-need": 3, "cold": 4}


@dataclasses.dataclass(frozen=True)
class Residency:
    """How many pages of an array are where, at one moment."""

    untouched: int
    resident: int
    staged: int
    paged_out: int
    lost: int


@dataclasses.dataclass(frozen=True)
class ArrayStats:
    """What is known of the memory of an array.

    The others count since it was subscribed to, and are `None` where it is not: pages that went out and came back, and touches that the pager
    served: `major_faults` those that began a read, `minor_faults` all others.
    """

    residency: Residency
    went_out: Optional[int] = None
    came_back: Optional[int] = None
    major_faults: Optional[int] = None
    minor_faults: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Stats:
    """What a pager counted since it was opened. Pages are of 4 KiB."""

    limit_bytes: int
    resident_pages: int
    staged_pages: int
    peak_pages: int
    swap_pages: int
    minor_faults: int
    major_faults: int
    fault_ns: int
    zero_fills: int
    page_ins: int
    page_in_reads: int
    page_outs: int
    page_out_writes: int
    clean_drops: int
    zero_drops: int
    read_ahead_pages: int
    read_ahead_hits: int
    store_errors: int
    checksum_errors: int
    overhead_bytes: int

    def _repr_html_(self) -> str:
        ram = (self.resident_pages + self.staged_pages) * PAGE_BYTES
        part = min(100, round(100 * ram / self.limit_bytes))
        bar = (
            '<div style="width:20em;border:1px solid gray">'
            f'<div style="width:{part}%;background:#4a90d9">&nbsp;</div></div>'
        )
        rows = "".join(
            f"<tr><td>{field.name}</td><td>{getattr(self, field.name):,}</td></tr>"
            for field in dataclasses.fields(self)
        )
        head = f"{ram >> 20} of {self.limit_bytes >> 20} MiB in RAM"
        return f"<div>{head}{bar}<table>{rows}</table></div>"


class Pager:
    """A limit of RAM for arrays, and a swap file for the rest of them.

    `limit` is in bytes, or a text as "2G"; at least 8 MiB. `swap` is the folder of the swap file, /var/tmp where it is not given. `settings` are those of
    `outpage run`: `reclaim="lirs"`, `swap_cap="64G"`, `encrypt="off"`.

    Leaving its `with` block gives the handle back: arrays that are left go on until they are gone.
    """

    def __init__(self, limit: Union[int, str], swap: Any = None, **settings: Any) -> None:
        size = parse_size(limit) if isinstance(limit, str) else int(limit)
        pairs = [(name.replace("_", "-"), str(value)) for name, value in settings.items()]
        if swap is not None:
            pairs.append(("swap", os.fspath(swap)))
        self._pager = _Pager(size, pairs)

    def __enter__(self) -> Pager:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives the handle back: nothing can be asked of it any more."""
        self._pager = None

    def _there(self) -> _Pager:
        if self._pager is None:
            raise ValueError("the pager is closed")
        return self._pager

    @property
    def limit(self) -> int:
        """Bytes of RAM."""
        return self._there().limit

    def zeros(self, shape: Shape, dtype: Any = float, order: str = "C") -> np.ndarray:
        """An array of zeros. It takes RAM where it is touched."""
        dtype = _plain(dtype)
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        count = 1
        for length in shape:
            count *= int(length)
        if count < 0 or any(length < 0 for length in shape):
            raise ValueError("negative dimensions are not allowed")
        region = self._there().region(count * dtype.itemsize)
        return np.frombuffer(region, dtype=dtype, count=count).reshape(shape, order=order)

    def empty(self, shape: Shape, dtype: Any = float, order: str = "C") -> np.ndarray:
        """The same: fresh memory is zero anyway."""
        return self.zeros(shape, dtype, order)

    def from_file(self, path: Any, dtype: Any = np.uint8, shape: Any = None) -> np.ndarray:
        """An array with what the file holds now, as `numpy.fromfile` has it. The file is read once; nothing is written to it."""
        dtype = _plain(dtype)
        region = self._there().region_from_file(os.fspath(path))
        if len(region) % dtype.itemsize:
            raise ValueError("the file does not hold a whole number of values")
        array = np.frombuffer(region, dtype=dtype, count=len(region) // dtype.itemsize)
        return array if shape is None else array.reshape(shape)

    def discard(self, array: np.ndarray) -> None:
        """What `array`, a contiguous part of one of this package's, holds in whole pages is not wanted until `take_back`: it leaves before everything
        else and is not written. An element that is looked at meanwhile is what it was, or zero."""
        region, start, end = _span(array)
        region.discard(start, end)

    def take_back(self, array: np.ndarray) -> list[slice]:
        """The elements are wanted again. Those that were dropped, as slices of the flat array: they are zero, or what was written since, in part where
        an element lies in two pages. All others are as they were."""
        region, start, end = _span(array)
        size = array.itemsize
        lost: list[slice] = []
        for page in region.take_back(start, end):
            first = max(0, page - start) // size
            last = min(array.size, -(-(page + PAGE_BYTES - start) // size))
            if lost and lost[-1].stop >= first:
                lost[-1] = slice(lost[-1].start, last)
            elif first < last:
                lost.append(slice(first, last))
        return lost

    def clear(self, array: np.ndarray) -> None:
        """Makes a contiguous part of an array zero. Whole pages take neither RAM nor disk until they are touched."""
        region, start, end = _span(array)
        region.clear(start, end)

    def prefault(self, array: np.ndarray) -> None:
        """Brings a contiguous part of an array into RAM."""
        region, start, end = _span(array)
        region.prefault(start, end)

    def advise(self, array: np.ndarray, advice: str) -> None:
        """Says what will be done with a contiguous part of an array; no element depends on it. "sequential" and "random" decide what is read ahead there until
        "normal" is said, "will-need" has it read in the background, up to half of the limit, and "cold" has it leave first."""
        if advice not in _ADVICE:
            raise ValueError(f"no such advice: {advice!r}; there are {', '.join(_ADVICE)}")
        region, start, end = _span(array)
        region.advise(start, end, _ADVICE[advice])

    @contextlib.contextmanager
    def pin(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """Brings a contiguous part of an array into RAM and keeps it there for a `with` block: half of the limit at most."""
        region, start, end = _span(array)
        pages = region.pin(start, end)
        try:
            yield array
        finally:
            pages.release()

    def subscribe(self, array: np.ndarray) -> Subscription:
        """From now on it can be known which elements of an array are out, before they are touched. The memory of an array has one subscription at a time."""
        region, start, _ = _span(array)
        return Subscription(region.subscribe(), start, array.nbytes, array.itemsize)

    @contextlib.contextmanager
    def watch(self, array: np.ndarray, leaving: Callable[[slice], object]) -> Iterator[None]:
        """For a `with` block `leaving` is called before elements of an array leave RAM, with a slice of the flat array: they are in RAM still, and looking at them
        keeps them there. Another thread calls it, and nothing waits for it. What it raises is reported, and passed over. The memory of an array has one watch at a time."""
        region, start, end = _span(array)
        size = array.itemsize

        def pages(first: int, last: int) -> None:
            first, last = max(first, start), min(last, end)
            if first < last:
                leaving(slice((first - start) // size, -(-(last - start) // size)))

        watch = region.watch(pages)
        try:
            yield
        finally:
            watch.close()

    def array_stats(self, array: np.ndarray) -> ArrayStats:
        """Where the pages are of the memory that an array is in, all of it, and what became of them since it was subscribed to."""
        region, _, _ = _span(array)
        residency, traffic = region.stats()
        return ArrayStats(Residency(*residency), *(traffic or ()))

    def growing(self, dtype: Any = float) -> GrowingArray:
        """A one-dimensional array that is empty, and grows without being copied."""
        return GrowingArray(self._there().region(0), _plain(dtype))

    def residency(self, array: np.ndarray) -> Residency:
        """Where the pages of a contiguous part of an array are."""
        region, start, end = _span(array)
        return Residency(*region.residency(start, end))

    def stats(self) -> Stats:
        """What was counted so far."""
        return Stats(**dict(self._there().stats()))

    def __repr__(self) -> str:
        return "Pager(closed)" if self._pager is None else f"Pager(limit={self._pager.limit})"


class Subscription:
    """Knows which elements of an array are out: asking costs no call of the pager. It ends when it is gone."""

    def __init__(self, told: _Subscription, start: int, nbytes: int, itemsize: int) -> None:
        self._told, self._start, self._nbytes, self._itemsize = told, start, nbytes, itemsize

    def is_out(self, index: int) -> bool:
        """Whether element `index` of the flat array begins in a page that is out, so that a look waits. That may change at any moment."""
        at = index * self._itemsize
        if not 0 <= at < self._nbytes:
            raise IndexError(index)
        return self._told.is_out(self._start + at)

    def changes(self) -> dict[int, bool]:
        """The pages of the array that went out or came in since the last time, each by its first element that begins there, and whether it is out now.
        The first time tells of what is out already."""
        changed: dict[int, bool] = {}
        for page, out in self._told.drain():
            first = -(-max(0, page - self._start) // self._itemsize)
            if page + PAGE_BYTES > self._start and first * self._itemsize < self._nbytes:
                changed[first] = out
        return changed


class GrowingArray:
    """A one-dimensional array that grows: `append`, `extend`, `resize`. `view()` is a numpy array of what is there.

    Nothing is copied when it grows, and room that is not used yet takes no RAM. While an array of it is left, growing beyond that room raises
    `BufferError`, for the memory may lie elsewhere afterwards.
    """

    def __init__(self, region: _Region, dtype: np.dtype) -> None:
        self._region, self._dtype, self._length = region, dtype, 0

    def __len__(self) -> int:
        return self._length

    @property
    def dtype(self) -> np.dtype:
        """Of its elements."""
        return self._dtype

    def view(self) -> np.ndarray:
        """What is there, as an array of that memory."""
        return np.frombuffer(self._region, dtype=self._dtype, count=self._length)

    def append(self, value: Any) -> None:
        """Adds one element."""
        self.extend(np.asarray(value, dtype=self._dtype).reshape(1))

    def extend(self, values: Any) -> None:
        """Adds elements."""
        values = np.asarray(values, dtype=self._dtype).reshape(-1)
        end = self._length + values.size
        self._have_room(end)
        np.frombuffer(self._region, dtype=self._dtype, count=end)[self._length :] = values
        self._length = end

    def resize(self, length: int) -> None:
        """Makes it `length` elements long: new ones are zero, those beyond are gone, RAM and disk of theirs too."""
        if length < 0:
            raise ValueError("negative lengths are not allowed")
        if length < self._length:
            self._region.resize(length * self._dtype.itemsize)
        self._have_room(length)
        self._length = length

    def _have_room(self, length: int) -> None:
        bytes_needed = length * self._dtype.itemsize
        if bytes_needed > len(self._region):
            # Half as much again: address space alone.
            self._region.resize(max(bytes_needed, len(self._region) * 3 // 2))

    def __repr__(self) -> str:
        return f"GrowingArray({self._length}, dtype={self._dtype})"


def to_arrow(array: np.ndarray) -> Any:
    """A one-dimensional array of numbers as a `pyarrow.Array` of the same memory: nothing is copied, and what is written later shows. Of it polars makes series, and
    pyarrow tables, without a copy."""
    import pyarrow

    if array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError("Arrow's arrays have one dimension and no gaps")
    kind = pyarrow.from_numpy_dtype(array.dtype)
    if kind.bit_width != 8 * array.itemsize:
        raise TypeError(f"Arrow has no values like those of {array.dtype}")
    return pyarrow.Array.from_buffers(kind, array.size, [None, pyarrow.py_buffer(array)])


def _plain(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype.hasobject or dtype.itemsize == 0:
        raise TypeError(f"values of type {dtype} are not their bytes alone")
    return dtype


def _span(array: np.ndarray) -> tuple[_Region, int, int]:
    """The region of an array, and the bytes of it that the array is."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError("the part of the array is not contiguous")
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, _Region):
        raise TypeError("the array is none of a pager's")
    start = array.__array_interface__["data"][0] - base.address
    return base, start, start + array.nbytes

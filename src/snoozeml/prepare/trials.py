"""Running a model on made-up data, to see how it treats rows and whether its plan answers alike.

Nothing is known about what a model's inputs mean, so many models refuse such data. That says
nothing against them; a trial that cannot run has no result.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.prepare.batching import Axes, OutputRows
from snoozeml.prepare.session import Session
from snoozeml.wire.tensors import DTYPES

Array = npt.NDArray[Any]
Feed = dict[str, Array]

_OPEN_SIZES: Final = (16, 64, 224, 512)
"""Sizes tried for open dimensions: tokens, small images, usual images, a window of audio."""

_LARGEST_ELEMENTS: Final = 1 << 22
_FATAL_ONLY: Final = 4
_BUDGET_S: Final = 5.0  # for all trials of one model
_TIMED_RUNS: Final = 4  # the first one pays for what is made on first use
_DTYPES: Final = {**DTYPES, "BYTES": np.dtype(np.str_)}  # made-up text has a length


@contextmanager
def trials_of(session: Session, signature: Signature) -> Iterator["Trials"]:
    """Trials with a common time budget, after which every run ends at once and has no result."""
    options = ort.RunOptions()
    options.log_severity_level = _FATAL_ONLY  # refusals are expected, not news
    timer = Timer(_BUDGET_S, setattr, (options, "terminate", True))
    timer.start()
    try:
        yield Trials(session, signature, options)
    finally:
        timer.cancel()


class Trials:
    """Trials of one model; made by `trials_of`."""

    def __init__(self, session: Session, signature: Signature, options: Any) -> None:
        self._session = session
        self._inputs = signature.inputs
        self._options = options

    def rows(self, axes: Axes) -> list[OutputRows] | None:
        """Run two rows alone and together; see `batching.Trial`."""
        start = self._start(axes)
        if start is None:
            return None
        pair, first = start
        second, both = self._run(self._session, _row(pair, axes, 1)), self._run(self._session, pair)
        if self._options.terminate:
            return None
        if second is None or both is None:  # the model is bound to one row, whatever it declares
            return [OutputRows(None, answer.ndim) for answer in first]
        return [
            OutputRows(_row_axis(*three), three[0].ndim)
            for three in zip(first, second, both, strict=True)
        ]

    def padding(self, signature: Signature) -> list[int | None] | None:
        """Run a short row alone and padded beside a long one; see `padding.PaddingTrial`."""
        for size in _OPEN_SIZES:
            feeds = _short_and_padded(signature.inputs, size)
            alone = self._run(self._session, feeds[0]) if feeds else None
            if feeds and alone is not None:
                both = self._run(self._session, feeds[1])
                return _length_axes(signature.outputs, alone, both) if both else None
        return None

    def same_answers(self, plan: Session) -> bool:
        """Whether a plan answers like the model; also True when the model refuses made-up data."""
        axes = tuple(spec.batch_axis for spec in self._inputs)
        start = self._start(axes)
        if start is None:
            return True
        pair, wanted = start
        answer = self._run(plan, _row(pair, axes, 0))
        if answer is None:
            return bool(self._options.terminate)
        return all(map(_close, answer, wanted))

    def row_s(self, plan: Session) -> float | None:
        """Seconds that a plan takes for one row, at its best; None when it refuses made-up data."""
        axes = tuple(spec.batch_axis for spec in self._inputs)
        start = self._start(axes)
        if start is None:
            return None
        row = _row(start[0], axes, 0)
        best_s = math.inf
        for _ in range(_TIMED_RUNS):
            began = time.perf_counter()
            if self._run(plan, row) is None:
                return None
            best_s = min(best_s, time.perf_counter() - began)
        return best_s

    def _start(self, axes: Axes) -> tuple[Feed, list[Array]] | None:
        """The first made-up feed of two rows whose first row the model accepts, with its answer."""
        for size in _OPEN_SIZES:
            pair = _feed_of_two(self._inputs, axes, size)
            answer = self._run(self._session, _row(pair, axes, 0)) if pair else None
            if pair and answer is not None:
                return pair, answer
        return None

    def _run(self, session: Session, feed: Feed) -> list[Array] | None:
        try:
            answer: list[Array] = session.run(None, feed, self._options)
        except Exception:  # the engine's errors share no base class; any of them is a refusal
            return None
        return answer


def _feed_of_two(inputs: Sequence[TensorSpec], axes: Axes, open_size: int) -> Feed | None:
    """Two rows along `axes`; None when they would be too large or of a datatype without numpy's.

    Small whole numbers and fractions are what most models accept: as ids, masks and features.
    """
    random = np.random.default_rng(seed=0)
    feed: Feed = {}
    for spec, batch_axis in zip(inputs, axes, strict=True):
        shape = [dim if isinstance(dim, int) else open_size for dim in spec.shape]
        if batch_axis is not None:
            shape[batch_axis] = 1
        if math.prod(shape) > _LARGEST_ELEMENTS or spec.datatype not in _DTYPES:
            return None
        dtype = _DTYPES[spec.datatype]
        small = random.random(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        if batch_axis is not None:
            small = np.concatenate([small, 1 - small], batch_axis)  # rows differ in every place
        feed[spec.name] = small.astype(dtype)
    return feed


def _short_and_padded(inputs: Sequence[TensorSpec], size: int) -> tuple[Feed, Feed] | None:
    """A row half as long as `size`, and the same row padded with another one beside it."""
    axes = tuple(spec.batch_axis for spec in inputs)
    padded = _feed_of_two(inputs, axes, size)
    if padded is None:
        return None
    ragged = [
        (spec, batch_axis, spec.ragged_axis)
        for spec, batch_axis in zip(inputs, axes, strict=True)
        if batch_axis is not None and spec.ragged_axis is not None
    ]
    for spec, batch_axis, ragged_axis in ragged:
        rows_first = np.moveaxis(padded[spec.name], (batch_axis, ragged_axis), (0, 1))
        if spec.default is None:
            rows_first[0] += 1  # an id that looks like padding would hide what padding does
        rows_first[0, size // 2 :] = spec.fill
    short = _row(padded, axes, 0)
    for spec, _, ragged_axis in ragged:
        short[spec.name] = short[spec.name].take(range(size // 2), ragged_axis)
    return short, padded


def _row(feed: Feed, axes: Axes, row: int) -> Feed:
    return {
        name: values if axis is None else np.take(values, [row], axis)
        for (name, values), axis in zip(feed.items(), axes, strict=True)
    }


def _row_axis(first: Array, second: Array, both: Array) -> int | None:
    """The axis along which `both` is `first` followed by `second`."""
    for axis in range(both.ndim):
        if first.shape[axis : axis + 1] == second.shape[axis : axis + 1] == (1,):
            joined = np.stack((first.take(0, axis), second.take(0, axis)), axis)
            if _close(both, joined):
                return axis
    return None


def _length_axes(
    specs: Sequence[TensorSpec], alone: Sequence[Array], both: Sequence[Array]
) -> list[int | None] | None:
    """Per output the axis that became longer by padding; None: something else changed as well."""
    axes: list[int | None] = []
    for spec, short, pair in zip(specs, alone, both, strict=True):
        padded = pair.take([0], spec.batch_axis)
        longer = [axis for axis in range(short.ndim) if short.shape[axis] != padded.shape[axis]]
        if len(longer) > 1:
            return None
        axis = longer[0] if longer else None
        cut = padded if axis is None else padded.take(range(short.shape[axis]), axis)
        if not _close(cut, short, spread=0.0):
            return None
        axes.append(axis)
    return axes


def _close(got: Array, wanted: Array, spread: float = 0.05) -> bool:
    """Equal up to rounding, which in models with dynamic quantisation depends on the neighbours.

    Whoever mixes up or mixes together rows is off by as much as the rows differ. A little padding
    that is not masked shows less, so there a share of the spread is too much to allow.
    """
    if got.shape != wanted.shape or wanted.dtype.kind != "f":
        return np.array_equal(got, wanted)
    finite = wanted[np.isfinite(wanted)].astype(np.float64)
    width, largest = (np.ptp(finite), np.abs(finite).max()) if finite.size else (0.0, 0.0)
    return np.allclose(got, wanted, rtol=0, atol=spread * width + 1e-3 * largest, equal_nan=True)

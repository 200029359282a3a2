"""No input crashes a parser, keeps it for long, or takes much memory: it is read, or refused by
name.

`make fuzz` tries 11,000 inputs for each parser; `make test` a few.
"""

import itertools
import logging
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.subject import MIB, Subject
from fuzz.subjects import SUBJECTS
from snoozeml.errors import Internal, InvalidInput

INPUTS: Final = int(os.environ.get("FUZZ_INPUTS", "60"))
"""For each parser."""

_ENOUGH: Final = 1000
_MOST_CPU_S: Final = 2.0
_MOST_MEMORY_BYTES: Final = 256 * MIB  # beyond what the process has already
_LONGEST_MESSAGE: Final = 4000  # the list of all architectures takes half of it


class TakesTooLong(BaseException):
    """One input kept the processor busy for too long."""


class Tally(NamedTuple):
    tried: int
    refused: int


@contextmanager
def _bounded() -> Iterator[None]:
    """Memory that cannot be had is an error, and so is time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + _MOST_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hard))
    before = signal.signal(signal.SIGPROF, _give_up)
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _give_up(*_: object) -> None:
    raise TakesTooLong


def _check_named(error: Exception) -> None:
    """A bug of ours has a name too, but it is not the client's."""
    message = str(error)
    assert not isinstance(error, Internal)
    assert message.isprintable() or "\n" in message
    assert len(message) < _LONGEST_MESSAGE


def fuzz(subject: Subject, folder: Path, inputs: int, most_cpu_s: float = _MOST_CPU_S) -> Tally:
    """Try inputs until one is found that the parser neither reads nor refuses."""
    tried = refused = 0

    @settings(
        max_examples=inputs,
        deadline=None,  # processor time is what counts here
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(subject.inputs)
    def read(content: Any) -> None:
        nonlocal tried, refused
        tried += 1
        signal.setitimer(signal.ITIMER_PROF, most_cpu_s)
        try:
            subject.read(content, folder)
        except subject.refusals as error:
            _check_named(error)
            refused += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    with _bounded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read()
    return Tally(tried, refused)


@pytest.mark.timeout(60 + INPUTS // 10)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_parser_reads_or_refuses(subject: Subject, tmp_path: Path) -> None:
    started = time.monotonic()
    tried, refused = fuzz(subject, tmp_path, INPUTS)
    took_s = time.monotonic() - started
    print(f"{subject.name}: {tried} inputs, {refused} refused, {took_s:.1f} s")
    assert tried >= INPUTS
    if tried > _ENOUGH:  # neither is nearly all of it nonsense, nor nearly all of it right
        assert 0.05 * tried < refused < 0.95 * tried


# What would be found


def _crash() -> None:
    raise KeyError("inputs")


def _internal() -> None:
    raise Internal("our bug")


def _essay() -> None:
    raise InvalidInput("." * _LONGEST_MESSAGE)


def _loop() -> None:
    for _ in itertools.count():
        pass


def _hoard() -> None:
    bytearray(2 * _MOST_MEMORY_BYTES)


@pytest.mark.parametrize(
    ("misbehave", "found"),
    [
        (_crash, KeyError),
        (_internal, AssertionError),
        (_essay, AssertionError),
        (_loop, TakesTooLong),
        (_hoard, MemoryError),
    ],
)
def test_a_parser_that_misbehaves_is_found(
    misbehave: Callable[[], None], found: type[BaseException], tmp_path: Path
) -> None:
    def read(content: int, _: Path) -> None:
        if content == 7:
            misbehave()

    planted = Subject("planted", st.integers(0, 9), read)
    with pytest.raises(found):
        fuzz(planted, tmp_path, 200, most_cpu_s=0.2)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)

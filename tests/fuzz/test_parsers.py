"""No input crashes a parser, keeps it for long, or takes much memory: it is read, or refused by
name.

`make fuzz` tries 11,000 inputs for each parser; `make test` a few.
"""

import os
import resource
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.subjects import SUBJECTS, Subject

INPUTS: Final = int(os.environ.get("FUZZ_INPUTS", "60"))
"""For each parser."""

_ENOUGH: Final = 1000
_MOST_CPU_S: Final = 2.0
_MOST_MEMORY_BYTES: Final = 1 << 30  # beyond what the process has already


class TakesTooLong(BaseException):
    """One input kept the processor busy for too long."""


@contextmanager
def _bounded() -> Iterator[None]:
    """Memory that cannot be had is an error, and so is time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + _MOST_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hard))
    before = signal.signal(signal.SIGPROF, _give_up)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _give_up(*_: object) -> None:
    raise TakesTooLong


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_a_parser_reads_or_refuses(subject: Subject, tmp_path: Path) -> None:
    tried = refused = 0

    @settings(
        max_examples=INPUTS,
        deadline=None,  # processor time is what counts here
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(subject.inputs)
    def read(content: Any) -> None:
        nonlocal tried, refused
        tried += 1
        signal.setitimer(signal.ITIMER_PROF, _MOST_CPU_S)
        try:
            subject.read(content, tmp_path)
        except subject.refusals:
            refused += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    started = time.monotonic()
    with _bounded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read()
    took_s = time.monotonic() - started
    print(f"{subject.name}: {tried} inputs, {refused} refused, {took_s:.1f} s")
    assert tried >= INPUTS
    if tried > _ENOUGH:  # neither is all of it nonsense, nor all of it right
        assert 0 < refused < tried

"""What a parser is fuzzed with: its subject, and the ways to inputs that are almost right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from hypothesis import strategies as st

from fuzz.mutations import Json, as_json, changes, damaged_bytes, damaged_json, damaged_text
from snoozeml.errors import SnoozeError

MIB: Final = 2**20


class Subject(NamedTuple):
    """A parser.

    Attributes:
        inputs: almost right ones.
        read: may raise what is in `refusals`; anything else is found.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    read: Callable[[Any, Path], object]
    refusals: tuple[type[Exception], ...] = (SnoozeError,)


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One strategy or another, each so many times as often. (`one_of` drops what is repeated.)"""
    wheel = [strategy for times, strategy in choices for _ in range(times)]
    return st.sampled_from(range(len(wheel))).flatmap(wheel.__getitem__)


def binary(*seeds: bytes) -> st.SearchStrategy[bytes]:
    damaged = st.builds(damaged_bytes, st.sampled_from(seeds), changes)
    return weighted((15, damaged), (1, st.binary(max_size=200)))


def text(*seeds: bytes) -> st.SearchStrategy[bytes]:
    damaged = st.builds(damaged_text, st.sampled_from(seeds), changes)
    return weighted((3, damaged), (1, binary(*seeds)))


def document(*seeds: Json) -> st.SearchStrategy[Json]:
    return st.builds(damaged_json, st.sampled_from(seeds), changes)


def json_text(*seeds: Json) -> st.SearchStrategy[bytes]:
    return weighted((6, document(*seeds).map(as_json)), (1, text(*map(as_json, seeds))))


def protobuf(*seeds: Message) -> st.SearchStrategy[bytes]:
    raw: tuple[bytes, ...] = tuple(seed.SerializeToString() for seed in seeds)
    kind, documents = type(seeds[0]), [MessageToDict(seed) for seed in seeds]

    def message(damaged: Json) -> bytes:
        try:
            parsed = ParseDict(damaged, kind(), ignore_unknown_fields=True)
            return bytes(parsed.SerializeToString())
        except (ParseError, TypeError, ValueError, AttributeError, OverflowError):
            return raw[0]

    return weighted((3, document(*documents).map(message)), (2, binary(*raw)))

"""Compressed bodies, in both directions.

zlib lets go of the interpreter while it works, so this is done in threads: 60 MiB take a quarter of
a second to inflate and more to compress, for which the daemon's loop must not stand still.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from snoozeml.errors import InvalidInput, PayloadTooLarge

ENCODINGS: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""What is understood, and how zlib calls it; "deflate" in HTTP has zlib's own frame (RFC 9110)."""

_MEMBER: Final = b"\x1f"
"""What each member of gzip begins with."""

_MOST_MEMBERS: Final = 4096
"""Of gzip in one body: empty ones take time, and no limit on what has been inflated ends them.
Where tools write many, they have 64 KiB each, so that 64 MiB are 1024."""

_STEP_BYTES: Final = 256 * 1024
_FASTEST: Final = 1
_SMALLEST_BYTES: Final = 1024  # what fits into one packet anyway
_SAMPLE_BYTES: Final = 64 * 1024
_WORTH_IT: Final = 0.9


def inflate(pieces: Sequence[bytes], encoding: bytes, limit_bytes: int) -> list[bytes]:
    """Inflate a body, and stop as soon as it has grown past the limit.

    Raises:
        InvalidInput: it is not compressed like this, or incomplete, or something follows it.
        PayloadTooLarge: it is larger than the limit.
    """
    inflated: list[bytes] = []
    size = 0
    try:
        for part in _parts(pieces, encoding):
            inflated.append(part)
            size += len(part)
            if size > limit_bytes:
                inflated.clear()  # the error's traceback would hold on to it
                raise PayloadTooLarge(
                    f"the inflated body is larger than the limit of {limit_bytes} bytes"
                    " (max_request_bytes)"
                )
    except zlib.error as error:
        raise _not_compressed(encoding, str(error)) from None
    return inflated


def _parts(pieces: Sequence[bytes], encoding: bytes) -> Iterator[bytes]:
    """Inflate in steps; what is gzip may be several members, one after another (RFC 1952, 2.2)."""
    inflater, members = zlib.decompressobj(ENCODINGS[encoding]), 1
    for piece in pieces:
        rest, part = piece, b"_"
        while rest or part:
            if rest and inflater.eof:
                _check_next(encoding, rest, members)
                inflater, members = zlib.decompressobj(ENCODINGS[encoding]), members + 1
            part = inflater.decompress(rest, _STEP_BYTES)
            rest = inflater.unused_data or inflater.unconsumed_tail
            yield part
    if not inflater.eof:
        raise _not_compressed(encoding, "it ends too early")


def _check_next(encoding: bytes, rest: bytes, members: int) -> None:
    if encoding != b"gzip" or not rest.startswith(_MEMBER):
        raise _not_compressed(encoding, "something follows its end")
    if members == _MOST_MEMBERS:
        raise _not_compressed(encoding, f"it has more than {_MOST_MEMBERS} members")


def _not_compressed(encoding: bytes, why: str) -> InvalidInput:
    return InvalidInput(f"the body is not what content-encoding {encoding.decode()} says: {why}")


def compressed(body: memoryview, encoding: bytes) -> bytes | None:
    """Compress a body; None where that would not make it much smaller, as with most floats."""
    wbits = ENCODINGS[encoding]
    if len(body) > _SAMPLE_BYTES:
        sample = zlib.compress(body[:_SAMPLE_BYTES], _FASTEST, wbits)
        if len(sample) > _WORTH_IT * _SAMPLE_BYTES:
            return None
    smaller = zlib.compress(body, _FASTEST, wbits)
    return smaller if len(smaller) < _WORTH_IT * len(body) else None


def encoding_for(accept_encoding: bytes, body_bytes: int) -> bytes | None:
    """What a client wants an answer compressed with; None: nothing, or it is too small for that."""
    if not accept_encoding or body_bytes < _SMALLEST_BYTES:
        return None
    wanted = set()
    for choice in accept_encoding.lower().split(b","):
        name, _, parameters = choice.partition(b";")
        weight = parameters.replace(b" ", b"")
        if not weight.startswith(b"q=0") or weight.strip(b"q=0."):
            wanted.add(name.strip())
    return next((encoding for encoding in ENCODINGS if encoding in wanted), None)

import gzip
import os
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.errors import InvalidInput, PayloadTooLarge
from snoozeml.fronts.http.compression import compressed, encoding_for, inflate

COMPRESS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
}


@given(st.binary(max_size=2000), st.sampled_from(sorted(COMPRESS)), st.integers(1, 500))
def test_a_body_is_inflated_however_it_was_cut(body: bytes, encoding: bytes, cut: int) -> None:
    packed = COMPRESS[encoding](body)
    pieces = [packed[at : at + cut] for at in range(0, len(packed), cut)]
    assert b"".join(inflate(pieces, encoding, 2000)) == body


@given(
    st.lists(st.binary(max_size=200), min_size=2, max_size=9),
    st.integers(1, 100),
    st.sampled_from([60_000, 1]),
)
def test_gzip_may_come_in_several_members(bodies: list[bytes], cut: int, size: int) -> None:
    bodies = [body * size for body in bodies]
    packed, body = b"".join(map(gzip.compress, bodies)), b"".join(bodies)
    cut *= 1 + len(packed) // 10_000
    pieces = [packed[at : at + cut] for at in range(0, len(packed), cut)]
    assert b"".join(inflate(pieces, b"gzip", len(body))) == body
    if body:
        with pytest.raises(PayloadTooLarge):
            inflate(pieces, b"gzip", len(body) - 1)
    with pytest.raises(InvalidInput, match="too early"):
        inflate([packed[:-1]], b"gzip", len(body))


def test_members_have_an_end() -> None:
    member = gzip.compress(b"")
    assert b"".join(inflate([member * 4096], b"gzip", 10)) == b""
    with pytest.raises(InvalidInput, match="more than 4096 members"):
        inflate([member * 200_000], b"gzip", 10)


def test_deflate_has_no_members() -> None:
    with pytest.raises(InvalidInput, match="something follows its end"):
        inflate([zlib.compress(b"a") * 2], b"deflate", 10)


def test_inflating_stops_soon_after_the_limit() -> None:
    bomb = gzip.compress(gzip.compress(bytes(2**30), 1), 1)
    with pytest.raises(PayloadTooLarge, match="1000000 bytes"):
        inflate([gzip.decompress(bomb)], b"gzip", 1_000_000)
    body = bytes(3 * 256 * 1024)
    assert len(b"".join(inflate([zlib.compress(body)], b"deflate", len(body)))) == len(body)
    with pytest.raises(PayloadTooLarge):
        inflate([zlib.compress(body)], b"deflate", len(body) - 1)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"", "too early"),
        (b"{}", "header"),
        (gzip.compress(b"text", mtime=0)[:-1], "too early"),
        (gzip.compress(b"text", mtime=0) + b"x", "something follows"),
        (zlib.compress(b"text"), "header"),
    ],
)
def test_what_is_not_compressed_as_its_head_says(packed: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"content-encoding gzip.*{why}"):
        inflate([packed], b"gzip", 1000)


def test_an_answer_is_compressed_where_that_helps() -> None:
    body = b"1.0," * 50_000
    for encoding in COMPRESS:
        smaller = compressed(memoryview(body), encoding)
        assert smaller is not None
        assert b"".join(inflate([smaller], encoding, len(body))) == body
    assert compressed(memoryview(os.urandom(200_000)), b"gzip") is None
    assert compressed(memoryview(os.urandom(2_000)), b"gzip") is None


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        (b"", None),
        (b"gzip", b"gzip"),
        (b"GZip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"br, deflate, gzip;q=0.5", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip; q=0.0 , identity", None),
        (b"br, *", None),
    ],
)
def test_what_a_client_accepts(accept: bytes, encoding: bytes | None) -> None:
    assert encoding_for(accept, 100_000) == encoding
    assert encoding_for(accept, 100) is None

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snoozeml.wire.frames import Frame, FrameParser, FrameTooLarge, Kind, header

FRAMES = [
    Frame(Kind.INFER, 1, 7, 2**63, 1.5, 2.5, b"x" * 100),
    Frame(Kind.STOP, 0, 0, 0, 0.0, 0.0, b""),
    Frame(Kind.RESULT, 0, 65535, 1, 0.0, 1e-9, bytes(range(256)) * 40),
]
STREAM = b"".join(
    header(f.kind, len(f.body), codec=f.codec, count=f.count, id=f.id, t0=f.t0, t1=f.t1) + f.body
    for f in FRAMES
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_frames_come_out_whole_however_the_stream_is_chopped(cuts: list[int]) -> None:
    parser = FrameParser()
    found: list[Frame] = []
    for begin, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True):
        found += parser.feed(STREAM[begin:end])
    assert found == FRAMES


def test_one_byte_at_a_time() -> None:
    parser = FrameParser()
    found = [frame for byte in STREAM for frame in parser.feed(bytes([byte]))]
    assert found == FRAMES


def test_a_count_beyond_its_field_is_the_largest_that_fits() -> None:
    (frame,) = FrameParser().feed(header(Kind.INFER, 0, count=100_000))
    assert frame.count == 65535


def test_a_frame_that_would_be_too_large_is_noticed_by_its_header() -> None:
    fits = header(Kind.RESULT, 76) + b"x" * 76
    parser = FrameParser(largest_bytes=104)
    assert [len(frame.body) for frame in parser.feed(fits)] == [76]
    with pytest.raises(FrameTooLarge, match="no more than 104"):
        parser.feed(header(Kind.RESULT, 77))

"""What was found out about one message is said of others like it, and of no other."""

from snoozeml.wire.outlines import Outlines

PART = slice(20, 24)


def message(part: bytes, tail: bytes = b"tail") -> bytes:
    return b"a beginning of it   " + part + tail


def learned(*messages: bytes, parts: tuple[slice, ...] = (PART,)) -> Outlines[str]:
    outlines = Outlines[str]()
    for known in messages:
        for _ in range(2):
            outlines.learn(known, lambda: (parts, "found"))
    return outlines


def test_only_parts_may_differ() -> None:
    outlines = learned(message(b"abcd"))
    assert outlines.find(message(b"efgh")) == "found"
    assert outlines.find(message(b"abcd", b"tall")) is None
    assert outlines.find(message(b"abcde")) is None
    assert outlines.find(b"A" + message(b"abcd")[1:]) is None


def test_what_comes_once_is_not_looked_at() -> None:
    outlines, looked = Outlines[str](), []

    def look() -> None:
        looked.append(1)

    outlines.learn(message(b"abcd"), look)
    assert not looked
    outlines.learn(message(b"abcd"), look)
    assert looked
    assert outlines.find(message(b"abcd")) is None


def test_messages_of_one_length_to_several_models_are_all_known() -> None:
    one, other = b"model 1 has a name  abcd", b"model 2 has a name  abcd"
    outlines = learned(one, other)
    assert outlines.find(one) == outlines.find(other) == "found"


def test_a_client_cannot_fill_the_memory() -> None:
    outlines = learned(*[message(b"abcd", bytes(size)) for size in range(1000)])
    assert outlines.find(message(b"abcd", bytes(999))) == "found"
    assert len(outlines._known) <= 64
    large = message(b"abcd", bytes(5000))
    assert learned(large).find(large) is None
    assert learned(large, parts=(slice(20, len(large)),)).find(large) == "found"

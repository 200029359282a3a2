import pytest

from snoozeml.fronts.http.priority import priority_in


@pytest.mark.parametrize(
    ("body", "priority"),
    [
        (b"{}", 0),
        (b'{"parameters": {"priority": 1}}', 1),
        (b'{"parameters": {"priority": 18446744073709551616}}', 2**64),
        (b'{"parameters": {"priority": 0, "timeout": 7}}', 0),
        (b'{"parameters": {"priority": 3}, "inputs": [NaN]}', 3),
        (b'{"parameters": null, "id": "priority"}', 0),
        (b'{"priority": 1}', 0),
    ],
)
def test_it_is_read_among_the_parameters(body: bytes, priority: int) -> None:
    assert priority_in([body]) == priority
    assert priority_in([body[:20], body[20:]]) == priority


@pytest.mark.parametrize("value", [b"-1", b"true", b'"1"', b"[]", b"1.5", b"null", b"1" * 5000])
def test_what_is_none_is_left_to_the_worker(value: bytes) -> None:
    assert priority_in([b'{"parameters": {"priority": %s}}' % value]) == 0

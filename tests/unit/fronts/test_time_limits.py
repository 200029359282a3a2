import pytest
from starlette.types import Scope

from snoozeml.errors import InvalidInput
from snoozeml.fronts.http.request import Request
from snoozeml.fronts.http.time_limits import IN_V1, IN_V2


def request(timeout_ms: bytes | None = None) -> Request:
    headers = [] if timeout_ms is None else [(b"x-request-timeout-ms", timeout_ms)]
    scope: Scope = {"headers": headers}
    return Request(scope)


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b"{}", None),
        (b'{"parameters": {"timeout": 2500000}}', 2.5),
        (b'{"parameters": {"timeout": 0}}', None),
        (b'{"parameters": null, "id": "timeout"}', None),
        (b'{"timeout": 2500000}', None),
        (b'{"parameters": {"timeout": 500000}, "inputs": [NaN]}', 0.5),
        (b'{"parameters": "timeout"', None),
    ],
)
def test_v2_counts_microseconds_among_its_parameters(body: bytes, seconds: float | None) -> None:
    assert IN_V2.asked_for(request(), [body]) == seconds
    assert (
        IN_V2.asked_for(request(), [body[at : at + 3] for at in range(0, len(body), 3)]) == seconds
    )
    assert IN_V2.asked_for(request(), [body[:20], body[20:]]) == seconds


def test_the_shorter_of_two_limits_counts() -> None:
    assert IN_V1.asked_for(request(b"100"), [b'{"timeout_ms": 200}']) == 0.1
    assert IN_V2.asked_for(request(b"300"), [b'{"parameters": {"timeout": 200000}}']) == 0.2


@pytest.mark.parametrize("value", [b"-1", b"true", b'"soon"', b"[]", b"86400000001"])
def test_no_limit_at_all_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInput, match="timeout must be a number of microseconds above 0"):
        IN_V2.asked_for(request(), [b'{"parameters": {"timeout": %s}}' % value])

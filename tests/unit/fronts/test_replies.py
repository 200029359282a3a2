import pytest

from snoozeml.errors import BY_CODE, ModelFailed, Overloaded, SnoozeError, from_code
from snoozeml.fronts.http.replies import STATUS, error_headers
from snoozeml.fronts.manners import usable_request_id


def test_every_failure_has_a_status() -> None:
    assert STATUS.keys() == BY_CODE.keys()


@pytest.mark.parametrize("code", BY_CODE)
def test_failure_survives_the_way_through_a_process_boundary(code: str) -> None:
    original = BY_CODE[code]("what was wrong")
    again = from_code(original.code, original.message)
    assert type(again) is type(original)
    assert again.message == original.message


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Overloaded("full", retry_after_s=0.2), b"1"),
        (ModelFailed("broken", retry_after_s=3.2), b"4"),
        (ModelFailed("broken"), b"1"),
    ],
)
def test_retry_after_is_whole_seconds_rounded_up(error: SnoozeError, seconds: bytes) -> None:
    assert (b"retry-after", seconds) in error_headers(error, "id")


@pytest.mark.parametrize("code", [code for code, error in BY_CODE.items() if not error.retryable])
def test_what_waiting_does_not_heal_says_nothing_about_when_to_come_back(code: str) -> None:
    error = BY_CODE[code].restated(SnoozeError("broken"), retry_after_s=0.8)  # its backoff
    assert "retry-after" not in [name.decode() for name, _ in error_headers(error, "id")]


@pytest.mark.parametrize(
    ("given", "usable"),
    [
        (b"abc-123", True),
        (b"", False),
        (b"x" * 129, False),
        (b"a\tb", False),
        ("naïve".encode(), False),
    ],
)
def test_only_a_request_id_fit_for_a_log_line_is_taken(given: bytes, usable: bool) -> None:
    assert usable_request_id(given) is usable

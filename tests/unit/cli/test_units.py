import pytest

from snoozeml.cli.units import human_bytes, human_span


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (87_312_345, "87.3 MB"), (999_700, "1 MB"),
     (3_210_000_000, "3.21 GB"), (5e15, "5e+03 TB")],
)  # fmt: skip
def test_bytes_keep_three_digits(count: float, shown: str) -> None:
    assert human_bytes(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 ms"), (0.25, "250 ms"), (0.9999, "999 ms"), (1, "1 s"), (59.9, "59 s"), (60, "1 min"),
     (7199, "1 h"), (172_800, "2 d"), (-0.5, "0 ms")],
)  # fmt: skip
def test_spans_are_told_in_the_largest_unit_they_fill(seconds: float, shown: str) -> None:
    assert human_span(seconds) == shown

"""Names of models as clients type them."""

import unicodedata

import pytest

from snoozeml.core.names import as_model_id, why_bad_model_id

LONGEST = "\u0390" * 127  # of 255 bytes at most, with as many parts as there can be


def test_the_longest_id_may_be_typed_in_parts() -> None:
    typed = unicodedata.normalize("NFD", LONGEST)
    assert why_bad_model_id(LONGEST) is None
    assert as_model_id(typed) == LONGEST


@pytest.mark.parametrize("typed", ["x" * 10**7, "a" + "\u0301" * 10**6 + "\u0323" * 10**6])
def test_a_name_that_is_longer_costs_nobody_anything(typed: str) -> None:
    # Accents out of order are put in order in a time that is quadratic in how many there are.
    meant = as_model_id(typed)
    assert len(meant) <= 1024
    assert why_bad_model_id(meant) is not None

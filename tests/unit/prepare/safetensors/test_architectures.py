"""Architectures that are not ours are refused with what would be."""

from typing import Any

import pytest

from snoozeml.errors import UnsupportedArchitecture
from snoozeml.prepare.safetensors.architectures import FAMILIES, find
from snoozeml.prepare.safetensors.configuration import Config


def refusal(**settings: Any) -> str:
    with pytest.raises(UnsupportedArchitecture) as caught:
        find(Config(settings))
    message = caught.value.message
    assert all(next(iter(family.architectures)) in message for family in FAMILIES)
    assert "docs/architectures.md" in message
    assert len(message) < 750
    return message


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"architectures": ["BertModle"]}, "BertModle is not supported; did you mean BertModel? "),
        ({"model_type": "bertt"}, "bertt is not supported; did you mean bert? "),
        ({"architectures": ["XyzzyLM"]}, "XyzzyLM is not supported; supported: "),
    ],
)
def test_a_name_that_is_nearly_one_of_ours_is_asked_about(
    settings: dict[str, Any], start: str
) -> None:
    assert refusal(**settings).startswith(f"the architecture {start}")


def test_a_configuration_that_names_none_says_where_it_would() -> None:
    told = refusal(hidden_size=8)
    assert told.startswith("config.json names no architecture")
    assert "`architectures` or `model_type`" in told

"""Messages go to logs and terminals, and hold words of files and clients."""

import pytest

from snoozeml.config.keys import ConfigError
from snoozeml.errors import InvalidInput, ShapeMismatch, from_code

EVIL = "no \x1b[2Jsuch\rthing\x00\udcff\nbut é"
TAME = "no \\x1b[2Jsuch\\rthing\\x00\\udcff\nbut é"


@pytest.mark.parametrize("error", [InvalidInput(EVIL), ConfigError(EVIL), from_code("x", EVIL)])
def test_what_would_command_a_terminal_is_spelt_out(error: Exception) -> None:
    assert str(error) == TAME


def test_what_has_been_spelt_out_stays_as_it_is() -> None:
    assert from_code("shape_mismatch", ShapeMismatch(EVIL).message).message == (
        f"shape mismatch: {TAME}"
    )


@pytest.mark.parametrize("cls", [InvalidInput, ShapeMismatch])
def test_a_long_message_is_cut_in_its_middle_once(cls: type[InvalidInput]) -> None:
    message = cls("'" + "x" * 10**7 + "' is wrong; 'y' is right").message
    assert len(message) <= 4096
    assert message.startswith(("'xxx", "shape mismatch: 'xxx"))
    assert message.endswith("xxx' is wrong; 'y' is right")
    assert "xxx … xxx" in message
    assert from_code(cls.code, message).message == message


def test_a_message_that_has_just_room_enough_stays_as_it_is() -> None:
    assert InvalidInput("x" * 4096).message == "x" * 4096

"""What clients are told of this machine's folders: nothing."""

from pathlib import Path

import pytest

from snoozeml.core.paths import without_folders


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Load model from /srv/models/m.onnx failed", "Load model from m.onnx failed"),
        ("'/srv/m.onnx', or '/etc/x'", "'m.onnx', or 'x'"),
        ("/home/a person/m.onnx is broken", "m.onnx is broken"),
        ("3/4 of ai.onnx/1 and https://example.org", "3/4 of ai.onnx/1 and https://example.org"),
    ],
)
def test_files_go_by_their_names_and_all_else_stays(text: str, told: str) -> None:
    assert without_folders(text, Path("/home/a person")) == told

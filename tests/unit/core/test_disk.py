"""Writing that fails says what it was that had no room."""

import errno
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from snoozeml.core.disk import out_of_space


def told(number: int, folder: Path) -> str | None:
    failure = out_of_space(OSError(number, "words"), folder)
    return None if failure is None else failure.message


@pytest.fixture
def limit_bytes() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, hard))
    yield 2**30
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_how_much_is_free(number: int, tmp_path: Path) -> None:
    assert "bytes are free" in (told(number, tmp_path) or "")


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path, limit_bytes: int) -> None:
    assert told(errno.EFBIG, tmp_path) == (
        f"a file of the model is larger than the {limit_bytes} bytes that the daemon may write into"
        " one (ulimit -f)"
    )


def test_without_one_it_is_the_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY,) * 2)
    assert told(errno.EFBIG, tmp_path) == (
        "a file of the model is larger than the file system that the models are on can hold"
    )


def test_other_failures_are_no_matter_of_room(tmp_path: Path) -> None:
    assert told(errno.EACCES, tmp_path) is None

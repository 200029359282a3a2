"""Every way a job can end is an outcome."""

import subprocess
import sys
from pathlib import Path

import pytest

from snoozeml.core.plan import PrepareJob
from snoozeml.errors import ModelFailed
from snoozeml.prepare import __main__ as main

JOB = PrepareJob(
    model_path="/models/m.onnx",
    format="onnx",
    toolchain="t",
    cache_dir="/cache",
    cache_limit_bytes=0,
)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ModelFailed("no such operator"), "model_failed", "no such operator"),
        (
            ModelFailed("no \udcff.bin"),
            "model_failed",
            r"no \udcff.bin",
        ),  # a name that is not UTF-8
        (MemoryError(), "out_of_memory", "out of memory while preparing m.onnx"),
        (RuntimeError("our secret"), "internal", "preparing m.onnx failed unexpectedly"),
    ],
)
def test_a_failure_is_an_answer_with_a_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, message: str
) -> None:
    def fail(job: PrepareJob) -> None:
        raise error

    monkeypatch.setattr(main, "_prepare", fail)
    outcome = main._outcome(JOB)
    assert outcome.plan is None
    assert outcome.error is not None
    assert outcome.error[0] == code
    assert message in outcome.error[1]
    assert "secret" not in outcome.error[1]


def test_a_bug_leaves_its_traceback_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(job: PrepareJob) -> None:
        raise RuntimeError("our secret")

    monkeypatch.setattr(main, "_prepare", fail)
    main._outcome(JOB)
    printed = capsys.readouterr()
    assert "RuntimeError: our secret" in printed.err
    assert printed.out == ""


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="the kernel shares between processes only"
)
@pytest.mark.parametrize("of_its_own", [True, False])
def test_preparing_gives_way_to_all_whom_it_does_not_share_a_session_with(of_its_own: bool) -> None:
    """And in a session that it shares, others stay as they are."""
    code = (
        "from pathlib import Path\n"
        "from snoozeml.prepare.__main__ import _give_way\n"
        "was = Path('/proc/self/autogroup').read_text()\n"
        "_give_way()\n"
        "print(Path('/proc/self/autogroup').read_text() != was)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        start_new_session=of_its_own,
    )
    assert run.stdout.strip() == str(of_its_own)

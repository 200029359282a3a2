"""Every way a job can end is an outcome."""

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

"""What a prepare process is asked, in tests."""

from pathlib import Path

from snoozeml.core.plan import Format, Precision, PrepareJob

LIMIT_BYTES = 1 << 30


def prepare_job(
    model: Path, format_: Format, cache_dir: Path, *, precision: Precision = "fp32"
) -> PrepareJob:
    return PrepareJob(
        model_path=str(model),
        format=format_,
        precision=precision,
        toolchain="t",
        cache_dir=str(cache_dir),
        cache_limit_bytes=LIMIT_BYTES,
    )

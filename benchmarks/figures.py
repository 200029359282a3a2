"""What a benchmark found, and whether it is as good as it must be."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from rich.table import Table

_WIDTH: Final = 110  # characters, also where the output is no terminal and so has no width
_PACKAGES: Final = ("onnxruntime", "uvicorn", "httptools", "uvloop", "numpy")


class Bound(msgspec.Struct, frozen=True):
    sense: Literal["at most", "at least"]
    value: float

    def holds(self, value: float) -> bool:
        return value <= self.value if self.sense == "at most" else value >= self.value

    def __str__(self) -> str:
        return f"{self.sense} {self.value:g}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number.

    Attributes:
        raw: the measurements that it was made of, by what was measured, in the order of time.
    """

    what: str
    value: float
    unit: str
    bound: Bound | None = None
    raw: Mapping[str, Sequence[float]] = {}

    @property
    def broken(self) -> bool:
        return self.bound is not None and not self.bound.holds(self.value)


def at_most(value: float) -> Bound:
    return Bound("at most", value)


def at_least(value: float) -> Bound:
    return Bound("at least", value)


def show(benchmark: str, figures: Iterable[Figure]) -> None:
    table = Table(title=benchmark, title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("must be")
    for figure in figures:
        verdict = "" if figure.bound is None else f"{figure.bound} {figure.unit}".rstrip()
        style = "red" if figure.broken else None
        table.add_row(figure.what, _value_text(figure), verdict, style=style)
    Console(width=_WIDTH).print(table)


def _value_text(figure: Figure) -> str:
    digits = 0 if abs(figure.value) >= 1000 else 3
    return f"{figure.value:,.{digits}f} {figure.unit}".rstrip()


def save(path: Path, found: Mapping[str, Sequence[Figure]]) -> None:
    """Write every figure with its raw numbers, and the machine they are from."""
    document: dict[str, Any] = {"machine": _machine(), "figures": msgspec.to_builtins(found)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(names),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }

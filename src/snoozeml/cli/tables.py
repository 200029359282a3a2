"""Models as tables on the terminal."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from snoozeml.cli.units import human_bytes, human_span

Model: TypeAlias = dict[str, Any]

_NOTHING: Final = "-"
_STATE_STYLES: Final = {"idle": "dim", "loading": "yellow", "ready": "green", "busy": "bold green"}
_PIPED_WIDTH: Final = 10_000  # columns: what another program reads is never folded or cut


def print_models(models: list[Model]) -> None:
    """One line per model, and a column of errors only if there is one to tell."""
    if not models:
        click.echo("No models yet. Put one into the models folder, then run `snooze refresh`.")
        return
    columns = dict(_COLUMNS)
    if any(model.get("last_error") for model in models):
        columns["last error"] = _last_error
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading, cell in columns.items():
        wraps = cell in (_id, _last_error)
        table.add_column(
            heading,
            no_wrap=not wraps,
            overflow="fold",
            justify="right" if cell in _QUANTITIES else "left",
        )
    for model in models:
        table.add_row(*(cell(model) for cell in columns.values()))
    _console().print(table)


def print_model(model: Model) -> None:
    """Everything the daemon tells about one model, one line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, cell in _DETAILS.items():
        grid.add_row(heading, cell(model))
    _console().print(grid)


def _console() -> Console:
    """The console's own width where somebody looks; rich would cut what is piped at 80 columns."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def _text(value: object, style: str = "") -> Text:
    """A value as text; control characters in it cannot reach the terminal."""
    shown = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in str(value))
    return Text(shown, style)


def _field(name: str, show: Callable[[Any], str] = str) -> Callable[[Model], Text]:
    """A cell that shows one field of a model, or a dash where the daemon tells nothing."""

    def cell(model: Model) -> Text:
        value = model.get(name)
        return _text(_NOTHING if value is None or value == "" else show(value))

    return cell


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _idle_timeout(seconds: float) -> str:
    return human_span(seconds) if seconds else "never"


def _tensors(specs: list[dict[str, Any]]) -> str:
    return "\n".join(f"{spec['name']}  {spec['datatype']} {spec['shape']}" for spec in specs)


def _id(model: Model) -> Text:
    return _text(model.get("id"), "bold")


def _state(model: Model) -> Text:
    state = str(model.get("state"))
    return _text(state, _STATE_STYLES.get(state, ""))


def _last_error(model: Model) -> Text:
    return _text(model.get("last_error") or _NOTHING, "red" if model.get("last_error") else "")


_memory = _field("memory_bytes", lambda count: human_bytes(count) if count else _NOTHING)
_queue = _field("queue_depth")
_idle_for = _field("last_accessed_secs_ago", human_span)
_QUANTITIES: Final = (_memory, _queue, _idle_for)

_COLUMNS: Final[dict[str, Callable[[Model], Text]]] = {
    "model": _id,
    "state": _state,
    "pinned": _field("pinned", _yes_no),
    "device": _field("device"),
    "memory": _memory,
    "queue": _queue,
    "idle for": _idle_for,
}
_DETAILS: Final[dict[str, Callable[[Model], Text]]] = {
    **_COLUMNS,
    "description": _field("description"),
    "format": _field("format"),
    "path": _field("onnx_path"),
    "inputs": _field("inputs", _tensors),
    "outputs": _field("outputs", _tensors),
    "replicas": _field("replicas"),
    "sleeps after": _field("idle_timeout_secs", _idle_timeout),
    "batches up to": _field("max_batch_size", lambda rows: f"{rows} rows"),
    "waiting at most": _field("max_batch_delay_ms", lambda delay: f"{delay:g} ms"),
    "loads": _field("loads"),
    "cold start": _field("cold_start_ms", lambda took: f"{took:.1f} ms"),
    "last error": _last_error,
}

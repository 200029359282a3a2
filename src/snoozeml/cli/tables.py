"""Models as tables on the terminal."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from snoozeml.cli.units import human_bytes, human_span

Model: TypeAlias = dict[str, Any]

_NOTHING: Final = "-"
_STATE_STYLES: Final = {
    "idle": "dim",
    "loading": "yellow",
    "ready": "green",
    "busy": "bold green",
    "failed": "red",
}
_NOTE_LINES: Final = 2
_TOLD_BELOW: Final = {"waits_for": "yellow", "last_error": "red"}
_PIPED_WIDTH: Final = 10_000  # columns: what another program reads is never folded or cut


def print_models(models: list[Model]) -> None:
    """One line per model with as many columns as there is room for; notes come below."""
    console = _console()
    console.print(_fitting_table(models, console))
    for model in models:
        for field, style in _TOLD_BELOW.items():
            if model.get(field):
                console.print(_note(model, field, style, console))


def print_model(model: Model) -> None:
    """Everything the daemon tells about one model, one line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, cell in _DETAILS.items():
        grid.add_row(heading, cell(model))
    console = _console()
    with console.capture() as printed:
        console.print(grid)
    for line in printed.get().splitlines():  # which are as long as the longest of them
        click.echo(line.rstrip(), color=console.is_terminal)


def _fitting_table(models: list[Model], console: Console) -> Table:
    """The columns of least use go first; if even that is not enough, names end in an ellipsis."""
    unbounded = console.options.update(max_width=_PIPED_WIDTH)
    for count in range(len(_EXPENDABLE) + 1):
        table = _table(models, [name for name in _COLUMNS if name not in _EXPENDABLE[:count]])
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            break
    return table


def _table(models: list[Model], headings: list[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    cells = [_COLUMNS[heading] for heading in headings]
    for heading, cell in zip(headings, cells, strict=True):
        # Only names may give way to the screen's edge, and their cells are cut, never folded.
        table.add_column(
            heading, no_wrap=cell is not _id, justify="right" if cell in _QUANTITIES else "left"
        )
    for model in models:
        table.add_row(*(cell(model) for cell in cells))
    return table


def _note(model: Model, field: str, style: str, console: Console) -> Text:
    """What is told below the table; `snooze status ID` has all of it."""
    told = " ".join(str(model[field]).split())
    note = Text.assemble(_id(model), ": ", _text(told, style))
    note.no_wrap, note.overflow = False, "fold"
    lines = note.wrap(console, console.width)
    if len(lines) > _NOTE_LINES:
        lines[_NOTE_LINES - 1].truncate(console.width - 1)
        lines[_NOTE_LINES - 1].append("…", style)
    return Text("\n").join(lines[:_NOTE_LINES])


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


def _tensors(specs: list[dict[str, Any]]) -> str:
    return "\n".join(f"{spec['name']}  {spec['datatype']} {spec['shape']}" for spec in specs)


def _id(model: Model) -> Text:
    text = _text(model.get("id"), "bold")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _state(model: Model) -> Text:
    """The daemon's word; but what ended in an error should not look as if it merely slept."""
    state = str(model.get("state"))
    if state == "idle" and model.get("last_error"):
        state = "failed"
    return _text(state, _STATE_STYLES.get(state, ""))


def _idle_for(model: Model) -> Text:
    idle_s = model.get("last_accessed_secs_ago")
    working = model.get("state") in ("loading", "busy")
    return _text(_NOTHING if idle_s is None or working else human_span(idle_s))


def _how_pinned(model: Model) -> Text:
    if model.get("pinned") and model.get("state") == "idle":
        return _text("yes, but not loaded: its next request wakes it, and then it stays")
    return _pinned(model)


def _sleeps_after(model: Model) -> Text:
    if model.get("pinned"):
        return _text("never, it is pinned")
    return _idle_timeout(model)


def _last_error(model: Model) -> Text:
    return _text(model.get("last_error") or _NOTHING, "red" if model.get("last_error") else "")


_pinned = _field("pinned", _yes_no)
_memory = _field("memory_bytes", lambda count: human_bytes(count) if count else _NOTHING)
_queue = _field("queue_depth")
_idle_timeout = _field("idle_timeout_secs", lambda span: human_span(span) if span else "never")
_QUANTITIES: Final = (_memory, _queue, _idle_for)

_COLUMNS: Final[dict[str, Callable[[Model], Text]]] = {
    "model": _id,
    "state": _state,
    "pinned": _pinned,
    "device": _field("device"),
    "memory": _memory,
    "queue": _queue,
    "idle for": _idle_for,
}
_EXPENDABLE: Final = ("device", "queue", "memory", "idle for", "pinned")
_DETAILS: Final[dict[str, Callable[[Model], Text]]] = {
    **_COLUMNS,
    "pinned": _how_pinned,
    "description": _field("description"),
    "format": _field("format"),
    "path": _field("onnx_path"),
    "inputs": _field("inputs", _tensors),
    "outputs": _field("outputs", _tensors),
    "replicas": _field("replicas"),
    "sleeps after": _sleeps_after,
    "batches up to": _field("max_batch_size", lambda rows: f"{rows} rows"),
    "waiting at most": _field("max_batch_delay_ms", lambda delay: f"{delay:g} ms"),
    "loads": _field("loads"),
    "cold start": _field("cold_start_ms", lambda took: f"{took:.1f} ms"),
    "waits for": _field("waits_for"),
    "last error": _last_error,
}

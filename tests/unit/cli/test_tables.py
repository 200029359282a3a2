"""What the models look like on a terminal of any width, and in a pipe."""

import json
import re
from typing import Any

import click
import pytest
from rich.cells import cell_len

from unit.cli.harness import FakeDaemon, snooze

IRIS: dict[str, Any] = {
    "id": "iris", "state": "ready", "pinned": True, "idle_timeout_secs": 300.0,
    "last_accessed_secs_ago": 754.2, "memory_bytes": 87_300_000, "queue_depth": 3, "device": "cpu",
    "last_error": None,
}  # fmt: skip
ASLEEP = {**IRIS, "id": "日本語 модель", "state": "idle", "pinned": False, "memory_bytes": 0,
          "last_accessed_secs_ago": None, "queue_depth": 0}  # fmt: skip
BROKEN = {**ASLEEP, "id": "broken", "last_error": "the graph has no inputs; " * 9}


def status(daemon: FakeDaemon, *models: dict[str, Any], columns: int | None = None) -> list[str]:
    """The lines that `snooze status` prints, piped or on a terminal of so many columns."""
    daemon.will_answer("GET /v1/models", models)
    terminal = {} if columns is None else {"FORCE_COLOR": "1", "COLUMNS": str(columns)}
    result = snooze("status", "--endpoint", daemon.url, **terminal)
    assert result.exit_code == 0
    return [line for line in click.unstyle(result.stdout).splitlines() if line.strip()]


def table(lines: list[str]) -> list[dict[str, str]]:
    """The rows by heading; columns are at least two spaces apart."""
    headings, _, *rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    return [dict(zip(headings, row, strict=True)) for row in rows]


def details(daemon: FakeDaemon, model: dict[str, Any]) -> dict[str, str]:
    daemon.will_answer("GET /v1/models/iris", model)
    lines = snooze("status", "iris", "--endpoint", daemon.url).stdout.splitlines()
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines)


def test_status_is_one_line_per_model(daemon: FakeDaemon) -> None:
    iris, asleep = table(status(daemon, IRIS, ASLEEP))
    assert iris == {
        "model": "iris", "state": "ready", "pinned": "yes", "device": "cpu", "memory": "87.3 MB",
        "queue": "3", "idle for": "12 min",
    }  # fmt: skip
    assert list(asleep.values()) == ["日本語 модель", "idle", "no", "cpu", "-", "0", "-"]


@pytest.mark.parametrize(
    ("columns", "headings"),
    [
        (70, ["model", "state", "pinned", "device", "memory", "queue", "idle for"]),
        (69, ["model", "state", "pinned", "memory", "queue", "idle for"]),
        (60, ["model", "state", "pinned", "memory", "idle for"]),
        (52, ["model", "state", "pinned", "idle for"]),
        (40, ["model", "state", "pinned"]),
        (30, ["model", "state"]),
    ],
)
def test_the_narrower_the_terminal_the_fewer_columns(
    daemon: FakeDaemon, columns: int, headings: list[str]
) -> None:
    lines = status(daemon, IRIS, ASLEEP, columns=columns)
    assert max(map(cell_len, lines)) <= columns
    rows = table(lines)
    assert [row["model"] for row in rows] == ["iris", "日本語 модель"]
    assert list(rows[0]) == headings


def test_a_name_is_cut_only_where_it_has_no_room_beside_the_state(daemon: FakeDaemon) -> None:
    model = {**IRIS, "id": "ab " * 10 + "end"}
    assert table(status(daemon, model, columns=50))[0]["model"] == model["id"]
    cut = table(status(daemon, model, columns=30))[0]
    assert cut["model"].endswith("…")
    assert model["id"].startswith(cut["model"][:-1])
    assert cut["state"] == "ready"


def test_an_error_is_told_below_the_table_and_takes_nothing_from_it(daemon: FakeDaemon) -> None:
    sound = {**BROKEN, "last_error": None}
    lines = status(daemon, IRIS, BROKEN, columns=72)
    *shown, first, second = lines
    assert list(table(shown)[0]) == list(table(status(daemon, IRIS, sound, columns=72))[0])
    assert second.endswith("…")
    told = f"{first} {second}".removesuffix("…").split()
    assert told == f"broken: {BROKEN['last_error']}".split()[: len(told)]
    assert max(map(cell_len, lines)) <= 72


def test_a_model_that_waits_for_room_says_so_below_the_table(daemon: FakeDaemon) -> None:
    waiting = {**ASLEEP, "id": "ninth", "state": "loading", "waits_for": "8 of 8 models are loaded"}
    assert status(daemon, IRIS, waiting, columns=72)[-1] == "ninth: 8 of 8 models are loaded"
    assert details(daemon, waiting)["waits for"] == "8 of 8 models are loaded"


def test_a_long_error_makes_no_other_line_longer(daemon: FakeDaemon) -> None:
    daemon.will_answer("GET /v1/models/broken", BROKEN)
    lines = snooze("status", "broken", "--endpoint", daemon.url).stdout.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert BROKEN["last_error"].strip() in lines[-1]


def test_what_is_piped_is_never_folded(daemon: FakeDaemon) -> None:
    long = "the graph has no inputs; " * 20
    *shown, error = status(daemon, IRIS, {**BROKEN, "last_error": f"{long}\n\x1b[31mmore"})
    assert error == f"broken: {long}\ufffd[31mmore"
    assert len(table(shown)) == 2


def test_a_model_that_could_not_be_loaded_does_not_look_asleep(daemon: FakeDaemon) -> None:
    assert table(status(daemon, BROKEN)[:-1])[0]["state"] == "failed"
    as_json = snooze("status", "--json", "--endpoint", daemon.url).stdout
    assert json.loads(as_json) == [BROKEN]


@pytest.mark.parametrize("state", ["busy", "loading"])
def test_a_model_at_work_has_been_idle_for_no_time(daemon: FakeDaemon, state: str) -> None:
    assert table(status(daemon, {**IRIS, "state": state}))[0]["idle for"] == "-"


def test_a_pinned_model_never_sleeps(daemon: FakeDaemon) -> None:
    told = details(daemon, IRIS)
    assert told["pinned"] == "yes"
    assert told["sleeps after"] == "never, it is pinned"


def test_a_pinned_model_that_was_unloaded_says_so(daemon: FakeDaemon) -> None:
    assert details(daemon, {**IRIS, "state": "idle"})["pinned"].startswith("yes, but not loaded")


@pytest.mark.parametrize(("idle_timeout_s", "told"), [(0, "never"), (300, "5 min")])
def test_when_a_model_sleeps_that_is_not_pinned(
    daemon: FakeDaemon, idle_timeout_s: float, told: str
) -> None:
    model = {**IRIS, "pinned": False, "idle_timeout_secs": idle_timeout_s}
    assert details(daemon, model)["sleeps after"] == told

"""What the log tells about a model's states."""

import logging

import pytest

from snoozeml.errors import ModelFailed, WorkerCrashed
from snoozeml.lifecycle import events
from snoozeml.lifecycle.limits import Limits
from snoozeml.lifecycle.machine import step
from snoozeml.lifecycle.model import Model, Phase
from snoozeml.lifecycle.printed import printed
from snoozeml.lifecycle.transitions import log_transition, why_of

LATE = 1e6


def log_of(caplog: pytest.LogCaptureFixture, *happened: events.Event) -> list[tuple[int, str]]:
    """Levels, and states with what they are due to."""
    model = Model(limits=Limits(idle_timeout_s=30.0, min_residency_s=5.0, max_replicas=1))
    with caplog.at_level(logging.DEBUG, "snoozeml.model"):
        for event in happened:
            before, (model, _) = model, step(model, event, LATE)
            if before.phase is not model.phase:
                log_transition("iris", before, event, model, 1.0)
    told = []
    for record in caplog.records:
        fields = record.__dict__["fields"]
        assert fields["model"] == "iris"
        told.append((record.levelno, f"{fields['state']} {fields.get('why')}"))
    return told


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (events.UnloadAsked(), "ready→stopping asked"),
        (events.SettingsChanged(), "ready→stopping refresh"),
        (events.CloseAsked(), "ready→stopping close"),
        (events.WorkerExited(1, WorkerCrashed("SIGSEGV")), "ready→idle crash"),
    ],
)
def test_a_transition_says_what_it_is_due_to(
    caplog: pytest.LogCaptureFixture, event: events.Event, state: str
) -> None:
    told = log_of(caplog, events.WorkArrived(), events.WorkerReady(1), events.WorkFinished(), event)
    assert told == [
        (logging.INFO, "idle→loading request"),
        (logging.INFO, "loading→ready None"),
        (logging.INFO, state),
    ]


def test_a_load_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    told = log_of(caplog, events.LoadAsked(), events.LoadFailed(1, ModelFailed("broken")))
    assert told == [
        (logging.INFO, "idle→loading asked"),
        (logging.WARNING, "loading→failed None"),
    ]
    assert caplog.records[-1].__dict__["fields"]["error"] == "broken"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (events.EvictAsked("capacity"), "capacity"),
        (events.EvictAsked("oom"), "oom"),
        (events.TimerRang(0.0), "idle"),
    ],
)
def test_a_model_that_was_not_asked_to_leave_says_why(event: events.Event, why: str) -> None:
    ready = Model(limits=Limits(idle_timeout_s=30.0, min_residency_s=5.0, max_replicas=1))
    happened: list[events.Event] = [events.LoadAsked(), events.WorkerReady(1)]
    for before in happened:
        ready, _ = step(ready, before, 0.0)
    after, _ = step(ready, event, LATE)
    assert after.phase is Phase.STOPPING
    assert why_of(event, ready) == why


def test_colours_of_the_terminal_do_not_reach_the_log() -> None:
    line = b"\x1b[1;31m2026-01-01 [E:onnxruntime:, x.cc:1 f] b\xc3\xb6se \xff\x1b[m\r"
    assert printed(line) == "2026-01-01 [E:onnxruntime:, x.cc:1 f] böse \ufffd"

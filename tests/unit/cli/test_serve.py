"""What `snooze serve` hands to the daemon, and what it says when the daemon cannot start."""

import errno
import sys
from pathlib import Path

import pytest

import snoozeml.daemon
from snoozeml.config.auth import AuthFlags
from snoozeml.config.loading import ConfigError, Overrides
from snoozeml.core.secret import Secret
from unit.cli.harness import snooze


class Started:
    """Stands in for `daemon.run`: keeps what it was given, and ends as it is told."""

    def __init__(self, outcome: int | Exception = 0) -> None:
        self.outcome = outcome
        self.overrides: Overrides | None = None
        self.ready_fd: int | None = None

    def __call__(self, overrides: Overrides, ready_fd: int | None) -> int:
        self.overrides, self.ready_fd = overrides, ready_fd
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    stand_in = Started()
    monkeypatch.setattr(snoozeml.daemon, "run", stand_in)
    return stand_in


def test_without_flags_nothing_is_overridden(started: Started) -> None:
    assert snooze("serve").exit_code == 0
    assert started.overrides == Overrides()
    assert started.ready_fd is None


def test_every_flag_arrives(started: Started, tmp_path: Path) -> None:
    ready = (tmp_path / "ready").open("w")
    flags = {
        "--host": "::1", "--port": "0", "--models-dir": "m", "--config": "c.toml",
        "--max-batch-size": "8", "--max-delay-ms": "2.5", "--log-format": "json",
        "--log-level": "debug", "--ready-fd": str(ready.fileno()), "--api-key": "ro:one",
        "--jwt-secret": "two", "--tls-cert": "c.pem", "--tls-key": "k.pem",
    }  # fmt: skip
    with ready:
        result = snooze("serve", *(word for flag in flags.items() for word in flag))
    assert result.exit_code == 0
    assert started.overrides == Overrides(
        host="::1", port=0, models_dir=Path("m"), config_path=Path("c.toml"), max_batch_size=8,
        max_batch_delay_ms=2.5, log_format="json", log_level="debug", tls_cert=Path("c.pem"),
        tls_key=Path("k.pem"),
        auth=AuthFlags(api_keys=(Secret("ro:one"),), jwt_secret=Secret("two")),
    )  # fmt: skip
    assert str(started.ready_fd) == flags["--ready-fd"]


def test_several_keys_may_be_given(started: Started) -> None:
    assert snooze("serve", "--api-key", "ro:one", "--api-key", "admin:two").exit_code == 0
    assert started.overrides is not None
    assert started.overrides.auth.api_keys == (Secret("ro:one"), Secret("admin:two"))
    assert "ro:one" not in repr(started.overrides)


@pytest.mark.parametrize("code", [0, 1])
def test_the_daemons_exit_code_is_the_commands(started: Started, code: int) -> None:
    started.outcome = code
    assert snooze("serve").exit_code == code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("models.toml: [defaults] idle_timout_secs: unknown key"), "unknown key"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Address already in use"),
        (OSError(errno.EACCES, "Permission denied", "/models"), "Permission denied: /models"),
        (OSError("no address to listen on"), "no address to listen on"),
    ],
)
def test_a_daemon_that_cannot_start_says_why_in_one_line(
    started: Started, error: Exception, said: str
) -> None:
    started.outcome = error
    result = snooze("serve")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.endswith(f"{said}\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value", "wanted"),
    [
        ("--port", "99999", "a whole number from 0 to 65535"),
        ("--log-level", "loud", "one of debug, error, info, warning"),
        ("--max-batch-size", "0", "a whole number from 1 to 65535"),
    ],
)
def test_a_value_that_a_flag_cannot_have_is_wrong_usage(flag: str, value: str, wanted: str) -> None:
    result = snooze("serve", flag, value)
    assert result.exit_code == 2
    assert f"Error: {flag}: " in result.stderr
    assert result.stderr.endswith(f" was given; expected {wanted}\n")


@pytest.mark.parametrize("arguments", [["--port", "http"], ["--ready-fd", "987"], ["--bind", "x"]])
def test_wrong_usage_exits_with_2(started: Started, arguments: list[str]) -> None:
    assert snooze("serve", *arguments).exit_code == 2
    assert started.overrides is None


def test_a_light_installation_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "snoozeml.daemon")
    monkeypatch.delattr(snoozeml, "daemon")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    result = snooze("serve")
    assert result.exit_code == 1
    assert "pip install 'snoozeml[server]' (uvloop is missing)" in result.stderr

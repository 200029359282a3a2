"""What the audit of pinned releases says, of advisories that are made up."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from archives import zipped

ROOT = Path(__file__).parents[3]
Json = dict[str, Any]
Audit = Callable[..., subprocess.CompletedProcess[str]]

PINS = "# what is installed\nleaky_Pipe==2.1\nsound==1.0  # why\n"


def advisory(name: str = "Leaky.Pipe", *, days_ago: int = 1, **affected: Any) -> Json:
    when = datetime.now(UTC) - timedelta(days=days_ago)
    return {
        "id": "PYSEC-1",
        "modified": f"{when:%Y-%m-%dT%H:%M:%SZ}",
        "aliases": ["CVE-1"],
        "summary": "it\nleaks",
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **affected}],
    }


def ranging(*events: Json, kind: str = "ECOSYSTEM") -> Json:
    return {"ranges": [{"type": kind, "events": list(events)}]}


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    def run(*advisories: Json, pins: str = PINS) -> subprocess.CompletedProcess[str]:
        known = tmp_path / "all.zip"
        files = {f"{number}.json": json.dumps(one) for number, one in enumerate(advisories)}
        known.write_bytes(zipped((name, text.encode()) for name, text in files.items()))
        return on(tmp_path, pins, str(known))

    return run


def on(folder: Path, pins: str, advisories: str) -> subprocess.CompletedProcess[str]:
    file = folder / "pins.txt"
    file.write_text(pins)
    command = [sys.executable, str(ROOT / "scripts/audit.py"), str(file), advisories]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": ["0.9-final-really", "2.0", "2.1.0"]},
        ranging({"introduced": "0"}),
        ranging({"introduced": "2"}, {"fixed": "2.1.1"}),
        ranging({"introduced": "0"}, {"last_affected": "2.1"}),
        ranging({"fixed": "1.1"}, {"introduced": "2.1"}, {"introduced": "1"}),
    ],
)
def test_a_vulnerable_pin_is_named(audit: Audit, affected: Json) -> None:
    told = audit(advisory(**affected), advisory("other", versions=["2.1"]))
    assert told.returncode == 1
    assert told.stdout.startswith("leaky-pipe 2.1: PYSEC-1 (CVE-1): it leaks\n")
    assert told.stdout.endswith(": 1 known vulnerabilities\n")


@pytest.mark.parametrize(
    "known",
    [
        advisory(versions=["2.0", "2.1.1"]),
        advisory(**ranging({"introduced": "0"}, {"fixed": "2.1"})),
        advisory(**ranging({"introduced": "2.1.0.1"})),
        advisory(**ranging({"introduced": "0"}, {"last_affected": "2.0"})),
        advisory(**ranging({"introduced": "0"}, kind="GIT")),
        advisory("other", versions=["2.1"]),
        advisory(versions=["2.1"]) | {"withdrawn": "2026-01-01T00:00:00Z"},
    ],
)
def test_a_sound_one_is_not(audit: Audit, known: Json) -> None:
    told = audit(known)
    assert told.returncode == 0, told
    assert "2 pins, 1 advisories up to 20" in told.stdout
    assert told.stdout.endswith(": no known vulnerabilities\n")


def test_without_advisories_nothing_is_said_to_be_good(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("please log in")
    refusals = {
        "there are no advisories": audit(),
        "90 days old": audit(advisory(days_ago=90)),
        "No such file": on(tmp_path, PINS, str(tmp_path / "missing.zip")),
        "not a zip file": on(tmp_path, PINS, str(tmp_path / "page.html")),
        "Connection refused": on(tmp_path, PINS, "http://127.0.0.1:1/all.zip"),
        "InvalidVersion": audit(advisory(**ranging({"introduced": "early"}))),
        "KeyError('modified')": audit({"id": "PYSEC-1"}),
        "line 1 of the pins": audit(advisory(), pins="loose>=2\n"),
    }
    for why, told in refusals.items():
        assert told.returncode == 2
        assert told.stderr.startswith("not audited: ")
        assert why in told.stderr
        assert told.stdout == ""


def test_our_own_pins_can_be_read(audit: Audit) -> None:
    told = audit(advisory("PyJWT", versions=["0"]), pins=(ROOT / "constraints.txt").read_text())
    assert told.returncode == 0, told.stderr

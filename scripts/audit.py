"""Looks every pinned release up among the known vulnerabilities: `audit.py PINS ADVISORIES`.

ADVISORIES are OSV's for PyPI (https://ossf.github.io/osv-schema): a zip archive of JSON files, or
where one can be downloaded. An archive that was carried here serves as well as the network.

Exit status: 0, nothing is known against any pin; 1, something is; 2, this could not be found out.
What was not looked at is never called good.
"""

import io
import json
import re
import sys
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_TIMEOUT_S: Final = 60.0
_OLDEST: Final = timedelta(days=30)  # some package gets an advisory every few days
_PIN: Final = re.compile(r"([\w.-]+)==([^\s;]+)(\s*#.*)?")

Advisory = Mapping[str, Any]


class NotAudited(Exception):
    """Nothing can be said about the pins; the message says why."""


def main(pins_file: str, advisories: str) -> int:
    try:
        pins = _pins(Path(pins_file).read_text(encoding="utf-8"))
        known = list(_advisories(advisories))
        newest = _newest(known)
        found = list(_vulnerabilities(pins, known))
    except NotAudited as error:
        print(f"not audited: {error}", file=sys.stderr)
        return 2
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        print(f"not audited: an advisory is not as it should be: {error!r}", file=sys.stderr)
        return 2
    looked_at = f"{len(pins)} pins, {len(known)} advisories up to {newest:%Y-%m-%d}"
    print(*found, f"{looked_at}: {len(found) or 'no'} known vulnerabilities", sep="\n")
    return 1 if found else 0


def _pins(text: str) -> dict[str, Version]:
    pins: dict[str, Version] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        pin = _PIN.fullmatch(line)
        if pin is None:
            raise NotAudited(f"line {number} of the pins is not NAME==VERSION: {line}")
        pins[canonicalize_name(pin[1])] = Version(pin[2])
    return pins


def _advisories(source: str) -> Iterator[Advisory]:
    try:
        content = _download(source) if "://" in source else Path(source).read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield json.loads(archive.read(name))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise NotAudited(f"the advisories cannot be had from {source}: {error}") from error


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  whatever is asked for
        content: bytes = answer.read()
        return content


def _newest(advisories: Sequence[Advisory]) -> datetime:
    if not advisories:
        raise NotAudited("there are no advisories")
    newest = max(datetime.fromisoformat(advisory["modified"]) for advisory in advisories)
    age = datetime.now(UTC) - newest
    if age > _OLDEST:
        raise NotAudited(f"the advisories are {age.days} days old; get newer ones")
    return newest


def _vulnerabilities(pins: Mapping[str, Version], advisories: Sequence[Advisory]) -> Iterator[str]:
    named: dict[str, str] = defaultdict(str)
    for advisory in advisories:
        for affected in () if "withdrawn" in advisory else advisory.get("affected", ()):
            name = _package(affected)
            if name in pins and _is_affected(pins[name], affected):
                aliases = ", ".join(advisory.get("aliases", ())) or "no other names"
                told = advisory.get("summary") or advisory.get("details", "")
                named[f"{name} {pins[name]}: {advisory['id']} ({aliases})"] = told[:200]
    for title, told in sorted(named.items()):
        yield f"{title}: {' '.join(told.split())}"


def _package(affected: Advisory) -> str:
    """Its name; empty where it is another ecosystem's."""
    package = affected.get("package", {})
    return canonicalize_name(package["name"]) if package.get("ecosystem") == "PyPI" else ""


def _is_affected(version: Version, affected: Advisory) -> bool:
    return any(_is_same(version, given) for given in affected.get("versions", ())) or any(
        _is_within(version, affected_range["events"])
        for affected_range in affected.get("ranges", ())
        if affected_range["type"] == "ECOSYSTEM"
    )


def _is_same(version: Version, given: str) -> bool:
    try:
        return version == Version(given)
    except InvalidVersion:  # of a time before there were rules
        return False


def _is_within(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """Whether the last event up to a version left it vulnerable."""
    order = sorted(
        (Version(at), what) for event in events for what, at in event.items() if what != "limit"
    )
    vulnerable = False
    for at, what in order:
        if what == "introduced" and version >= at:
            vulnerable = True
        elif (what == "fixed" and version >= at) or (what == "last_affected" and version > at):
            vulnerable = False
    return vulnerable


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

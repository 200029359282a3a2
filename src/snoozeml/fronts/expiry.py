"""When a certificate expires.

The standard library tells this of a certificate that somebody else showed, not of our own, and the
library that could takes 12 MB of a daemon that has 45.
"""

import calendar
import ssl
import time
from collections.abc import Iterator
from typing import Final

_VERSION: Final = 0xA0  # comes first, or not at all
_UTC_TIME: Final = 0x17
_VALIDITY: Final = 3  # after the serial number, the algorithm and the issuer


def expires_at(pem: str) -> float:
    """When the first certificate of a PEM file expires, in seconds since 1970.

    Source: RFC 5280, section 4.1.

    Raises:
        ValueError: there is no certificate in it.
    """
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    body, found, _ = pem.partition(begin)[2].partition(end)
    if not found:
        raise ValueError(f"there is no {begin}")
    der = ssl.PEM_cert_to_DER_cert(f"{begin}{body}{end}")
    try:
        (_, certificate), *_ = _members(der)
        (_, signed), *_ = _members(certificate)
        fields = [content for tag, content in _members(signed) if tag != _VERSION]
        _, (tag, not_after) = _members(fields[_VALIDITY])
        return _seconds(tag, not_after.decode("ascii"))
    except (IndexError, ValueError):
        raise ValueError("it holds no X.509 certificate") from None


def _members(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The values that follow one another in a piece of DER, by tag and content."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            digits = size & 0x7F
            size = int.from_bytes(der[at : at + digits])
            at += digits
        yield tag, der[at : at + size]
        at += size


def _seconds(tag: int, text: str) -> float:
    if tag == _UTC_TIME:  # two digits of the year: 50 and later are of the last century
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))

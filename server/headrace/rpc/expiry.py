"""When certificates expire, read from PEM text: Python's ssl tells it of verified peers only.

A certificate in DER is nested (tag, length, value) triples, and its dates are the fifth or sixth of
the innermost sequence: RFC 5280, section 4.1. OpenSSL has parsed the same bytes before.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Final

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]*)-----END", re.DOTALL
)
_VERSION: Final = 0xA0  # a tag: the field that certificates of version 1 lack
_UTC_TIME: Final = 0x17  # a tag: YYMMDDHHMMSSZ; GeneralizedTime is YYYYMMDDHHMMSSZ
_NUM_FIELDS_BEFORE: Final = 3  # serial number, signature, issuer
_CENTURY_TURN: Final = 50  # of two-digit years: from here on they are of the 1900s


def expires_at(pem: bytes) -> float:
    """Return the earliest end of the certificates in a PEM text, in seconds since 1970.

    Raises:
        ValueError: There is none, or one is no certificate.
    """
    blocks = _CERTIFICATE.findall(pem)
    if not blocks:
        raise ValueError("it holds no certificate")
    return min(_not_after(base64.b64decode(block)) for block in blocks)


def _not_after(der: bytes) -> float:
    try:
        _, at, _ = _element(der, 0)  # Certificate
        _, at, _ = _element(der, at)  # TBSCertificate
        tag, _, end = _element(der, at)
        if tag == _VERSION:
            at = end
        for _ in range(_NUM_FIELDS_BEFORE):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # Validity
        _, _, at = _element(der, at)  # not before
        tag, start, end = _element(der, at)
    except IndexError:
        raise ValueError("the certificate is cut short") from None
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_TURN else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the element at `at`, and where its value starts and ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:  # the length of the length
        num_bytes = length & 0x7F
        length = int.from_bytes(der[start : start + num_bytes])
        start += num_bytes
    return tag, start, start + length

"""Dates of certificates are those that `cryptography` reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import trustme
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.rpc.expiry import expires_at

AUTHORITY = trustme.CA()
WHEN = st.datetimes(
    datetime(1971, 1, 2),  # noqa: DTZ001 -- hypothesis puts the zone on
    datetime(9999, 12, 31),  # noqa: DTZ001 -- the same
    timezones=st.just(UTC),
).map(lambda when: when.replace(microsecond=0))


def issued(expires: datetime) -> bytes:
    born = datetime(1970, 1, 1, tzinfo=UTC)
    issue = AUTHORITY.issue_cert("localhost", not_before=born, not_after=expires)
    return issue.cert_chain_pems[0].bytes()


@settings(max_examples=25)
@given(WHEN)
def test_the_date_is_the_one_in_the_certificate(expires: datetime) -> None:
    """Before 2050 it is written with two digits of the year, from then on with four."""
    pem = issued(expires)
    assert expires_at(pem) == expires.timestamp()
    assert expires_at(pem) == x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def test_the_first_to_end_counts() -> None:
    """A chain is as good as its worst certificate, wherever it stands and whatever is between."""
    dates = [datetime(2040, 1, 1, tzinfo=UTC), datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)]
    first, second = map(issued, dates)
    assert expires_at(first + b"some text\n" + second) == dates[1].timestamp()
    assert expires_at(second + first) == dates[1].timestamp()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"text",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate(pem: bytes) -> None:
    """A ValueError, whatever it is."""
    with pytest.raises(ValueError, match=r"."):
        expires_at(pem)

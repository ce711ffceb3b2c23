"""Iceberg's own client of AWS Glue, against a peer that answers anything. `test_catalogs.py` runs this in a
session whose class path has AWS's clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.sinks.lake.iceberg.cut_off import is_outage

from penstock.failures.messages import advice_of, text_of
from penstock.failures.outages import passes, refuses
from penstock.sinks.lake.iceberg.catalog_options import GlueCatalog
from penstock.testing.faulty_peer import ANY_PROTOCOL, HTTP, Fault, FaultyPeer, http, says
from penstock.testing.servers.s3 import KEY_ID, SECRET

UNDERSTOOD = ("200 with {}", "200 with a wrong type", "200 with a float")
"""Java's client ignores what it does not expect in JSON."""
UNBOUNDED = (
    "one byte after another", "100 Continue without end", "a body without end", "chunks without end",
    "a slow body",
)  # fmt: skip
"""Java's client reads these as long as they last. They last for three seconds."""
FAULTS = [one for one in (*ANY_PROTOCOL, *HTTP) if one.name not in UNDERSTOOD]


def glue_says(kind: str, message: str, status: str = "400 Bad Request") -> Fault:
    answer = json.dumps({"__type": kind, "message": message}).encode()
    return says(kind, http(answer, status, "application/x-amz-json-1.1", "Connection: close"))


OUTAGES = (
    glue_says("ThrottlingException", "Rate exceeded"),
    glue_says("OperationTimeoutException", "The operation timed out."),
    glue_says("InternalServiceException", "An internal service error.", "500 Internal Server Error"),
    glue_says("ServiceUnavailable", "Try later.", "503 Service Unavailable"),
)
REFUSALS = (
    glue_says("ExpiredTokenException", "The security token included in the request is expired"),
    glue_says("UnrecognizedClientException", "The security token included in the request is invalid."),
    glue_says("InvalidSignatureException", "The request signature we calculated does not match yours."),
    glue_says("AccessDeniedException", "User: x is not authorized to perform: glue:GetTable on resource: y"),
)
"""Of https://docs.aws.amazon.com/glue/latest/webapi/CommonErrors.html and the pages of operations."""

Act = Callable[[Any], object]


@pytest.fixture
def jvm(spark: Any) -> Any:
    system = spark._jvm.java.lang.System
    system.setProperty("aws.accessKeyId", KEY_ID)
    system.setProperty("aws.secretAccessKey", SECRET)
    return spark._jvm


def connect(jvm: Any, peer: FaultyPeer) -> Any:
    limits = {f"http-client.apache.{one}-timeout-ms": "500" for one in ("socket", "connection")}
    ours = {"glue.endpoint": f"http://127.0.0.1:{peer.port}", "client.region": "us-east-1"}
    options = GlueCatalog.model_validate(
        {"type": "glue", "warehouse": "s3://lake/wh", "properties": {**ours, **limits}}
    )
    properties = jvm.java.util.HashMap()
    for name, value in options.iceberg_properties().items():
        if name != "type":
            properties.put(name, value)
    catalog = jvm.org.apache.iceberg.aws.glue.GlueCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("x", properties)
    return catalog


def test_a_catalog_that_answers_something_else_is_waited_for(jvm: Any) -> None:
    table = jvm.org.apache.iceberg.catalog.TableIdentifier.parse("shop.orders")
    acts: list[Act] = [lambda one: one.listNamespaces(), lambda one: one.loadTable(table)]
    found = []
    for fault in FAULTS:
        for act in acts:
            with FaultyPeer("127.0.0.1", 1) as peer:
                ask, ends = partial(act, connect(jvm, peer)), fault.name not in UNBOUNDED
                if not is_outage(jvm, peer, fault, "connect", ask, ends=ends):
                    found.append(fault.name)
    assert found == []


def test_glues_own_errors_are_an_outage_or_a_refusal(jvm: Any) -> None:
    table = jvm.org.apache.iceberg.catalog.TableIdentifier.parse("shop.orders")
    for fault in (*OUTAGES, *REFUSALS):
        with FaultyPeer("127.0.0.1", 1) as peer:
            peer.play(fault, at="connect")
            with pytest.raises(Exception) as raised:
                connect(jvm, peer).loadTable(table)
        error = raised.value
        assert (passes(error), refuses(error)) == (fault in OUTAGES, fault in REFUSALS), f"{fault}: {error}"
        advice = advice_of(text_of(error), rows=False)
        assert advice is not None and "glue" in advice.message.lower(), fault

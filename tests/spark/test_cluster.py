"""What is compared before work begins on a cluster."""

from __future__ import annotations

from penstock.spark.cluster import differences, own_facts


def test_a_worker_with_another_release_is_named_with_both() -> None:
    own = own_facts()
    equal = {"host": "one", **own}
    older = {"host": "two", **own, "penstock": "0.0.9"}
    without = {"host": "three", **{name: value for name, value in own.items() if name != "pyspark"}}
    assert differences([equal, equal], own) == []
    assert differences([equal, older, older, without], own) == [
        f"two has penstock 0.0.9 instead of {own['penstock']}",
        f"three has pyspark missing instead of {own['pyspark']}",
    ]

"""What is kept of many latencies: some percentiles, and how often which was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import quantiles
from typing import Any

BUCKET_S = 0.001


def summary(latencies_s: Sequence[float]) -> dict[str, Any]:
    """`buckets[i]`: how many lie between `i` and `i + 1` times `BUCKET_S`."""
    percent = quantiles(latencies_s, n=100)
    heaps = Counter(max(0, int(latency / BUCKET_S)) for latency in latencies_s)
    return {
        "p50_s": round(percent[49], 4), "p90_s": round(percent[89], 4), "p99_s": round(percent[98], 4),
        "max_s": round(max(latencies_s), 4), "buckets": [heaps[number] for number in range(max(heaps) + 1)],
    }  # fmt: skip

"""The workloads of the benchmark, by name: `make bench WORKLOADS="orders narrow"`."""

from __future__ import annotations

from bench.workload import Workload
from bench.workloads.hot_rows import HotRows
from bench.workloads.many_tables import ManyTables
from bench.workloads.rows import JSON, LARGE_TRANSACTIONS, NARROW, ORDERS, WIDE
from bench.workloads.tpcc import Tpcc

WORKLOADS: dict[str, Workload] = {
    one.name: one for one in (ORDERS, NARROW, WIDE, JSON, LARGE_TRANSACTIONS, ManyTables(), HotRows(), Tpcc())
}

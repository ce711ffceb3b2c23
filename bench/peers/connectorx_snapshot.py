"""ConnectorX reads a table into Arrow. Arguments: folder-of-connectorx url query partition-column connections
keep-or-drop.

`keep`: the table is in memory at the end. `drop`: batches are asked for one by one and dropped once counted.
"""

from __future__ import annotations

import json
import sys
import time

_BATCH_ROWS = 10_000


def main() -> None:
    folder, url, query, column, connections, then = sys.argv[1:]
    sys.path.insert(0, folder)
    import connectorx  # type: ignore[import-not-found]

    partition = {"partition_on": column, "partition_num": int(connections)} if int(connections) > 1 else {}
    began, cpu_began = time.monotonic(), time.process_time()
    if then == "keep":
        table = connectorx.read_sql(url, query, return_type="arrow", **partition)
        rows = table.num_rows
    else:
        table = connectorx.read_sql(
            url, query, return_type="arrow_stream", batch_size=_BATCH_ROWS, **partition
        )
        rows = sum(batch.num_rows for batch in table)
    report = {
        "version": connectorx.__version__,
        "changes": rows,
        "columns": len(table.schema),
        "wall_s": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu_began,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

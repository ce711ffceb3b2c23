"""ConnectorX reads a table into Arrow. Arguments: folder-of-connectorx url query partition-column
connections."""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    folder, url, query, column, connections = sys.argv[1:]
    sys.path.insert(0, folder)
    import connectorx  # type: ignore[import-not-found]

    partition = {"partition_on": column, "partition_num": int(connections)} if int(connections) > 1 else {}
    began, cpu_began = time.monotonic(), time.process_time()
    table = connectorx.read_sql(url, query, return_type="arrow", **partition)
    report = {
        "version": connectorx.__version__,
        "changes": table.num_rows,
        "columns": table.num_columns,
        "wall_s": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu_began,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

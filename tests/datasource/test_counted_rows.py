"""A consumer that counts rows: those that change while the table is read come as changes, never as `read`.
The judge is the server's SELECT."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path

from tests.datasource.test_stream import Following, Make, account, following  # noqa: F401

from penstock.testing.meanwhile import meanwhile
from penstock.testing.servers import Database

ROWS = 1000
PAGE = Path(__file__).parents[2] / "docs" / "spark-source.md"


def documented(table: str) -> str:
    """The query of the page, for a table of ours."""
    section = PAGE.read_text("utf-8").partition("## Count rows")[2]
    [sql] = re.findall(r"```sql\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert "lake.orders_changes" in sql
    return str(sql).replace("lake.orders_changes", table)


def test_the_newest_change_of_each_key_gives_the_rows_of_a_table_that_changed_while_it_was_read(
    following: Make,  # noqa: F811
    mysql: Database,
) -> None:
    mysql.execute("CREATE TABLE orders (id INT PRIMARY KEY, v INT)")
    mysql.execute("INSERT INTO orders VALUES " + ", ".join(f"({number}, 0)" for number in range(ROWS)))
    stream = following(f"{mysql.name}.orders", **account(mysql.server), chunkRows=200)
    written = 0

    def change(ending: threading.Event) -> None:
        nonlocal written
        with mysql.connect(database=mysql.name) as connection, connection.cursor() as cursor:
            while not ending.wait(0.02):  # the other half of the table is at rest
                written += 1
                key = written * 11 % (ROWS // 2)
                cursor.execute(f"UPDATE orders SET v = {written} WHERE id = {key}")
                cursor.execute(f"DELETE FROM orders WHERE id = {(key + 3) % (ROWS // 2)}")
                cursor.execute(f"REPLACE INTO orders VALUES ({(key + 7) % (ROWS // 2)}, {written})")

    with meanwhile(change):
        stream.start(availableNow=True).awaitTermination(200)
    stream.start(availableNow=True).awaitTermination(200)
    changes = stream.rows("id", "_change_type")
    kinds = Counter(kind for _, kind in changes)
    assert ROWS // 2 <= kinds["read"] < ROWS and kinds["delete"] > 0, kinds
    never_read = {key for key, _ in changes} - {key for key, kind in changes if kind == "read"}
    assert len(never_read) > 1, "no row changed while it was read"
    frame = stream.frame()
    assert frame is not None
    frame.createOrReplaceTempView("orders_changes")
    found = stream.spark.sql(documented("orders_changes")).select("id", "v").collect()
    assert sorted(map(tuple, found)) == sorted(mysql.query(f"SELECT * FROM {mysql.name}.orders"))

# %% [markdown]
# # A lake, its history, and Kafka
#
# This is `examples/lake.py`, and the notebook `examples/lake.ipynb`, which is made from it.
#
# It needs `pip install 'penstock[kafka]'`. It starts a private MySQL server and a private Kafka broker, so
# nothing else has to be there. The first run fetches them, and the jars of Iceberg.

# %%
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.testing import servers

os.environ["PYSPARK_PYTHON"] = sys.executable  # the Python that has Penstock, also for what Spark starts
folder = Path(tempfile.mkdtemp(prefix="penstock-lake-"))
running = ExitStack()  # ends the servers
server = running.enter_context(servers.mysql(private=True))
server.execute(
    "CREATE DATABASE shop",
    "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(40), country CHAR(2))",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer INT, total DECIMAL(10,2))",
    "INSERT INTO shop.customers VALUES (1, 'Ada', 'GB'), (2, 'Grace', 'US'), (3, 'Emmy', 'DE')",
    "INSERT INTO shop.orders VALUES (10, 1, 20.00), (11, 2, 5.00), (12, 3, 7.50), (13, 3, 2.50)",
)
source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}

# %% [markdown]
# ## 1. Lake tables
#
# Two options of this pipeline are for later parts: `history` keeps every version of a customer (part 2), and
# `views` keeps a join with a small table that nobody captures (part 3). `run(once=True)` ends when the
# targets have everything that is committed now.

# %%
(folder / "countries.csv").write_text("code,continent\nGB,Europe\nDE,Europe\nUS,America\n")
pipeline = Pipeline(
    name="lake",
    source=source,
    tables=["shop.*"],
    sink={"type": "iceberg", "path": folder / "lake"},
    history={"shop.customers": "scd2"},
    dimensions={"countries": {"file": str(folder / "countries.csv"), "key": ["code"]}},
    views={
        "revenue": {
            "sql": "SELECT n.continent, sum(o.total) AS total, count(*) AS orders FROM shop.orders o "
            "JOIN shop.customers c ON o.customer = c.id JOIN dimensions.countries n ON c.country = n.code "
            "GROUP BY n.continent"
        }
    },
    state=folder / "state",
)
pipeline.run(once=True)
found = pipeline.query("SELECT id, customer, total FROM orders ORDER BY id")
print(found)
assert [row["id"] for row in found] == [10, 11, 12, 13]

# %% [markdown]
# ## 2. Versions of rows
#
# Emmy moves, and Grace leaves. The lake has both versions of Emmy, and says until when the old one was valid.

# %%
server.execute(
    "UPDATE shop.customers SET country = 'US' WHERE id = 3",
    "DELETE FROM shop.orders WHERE customer = 2",
    "DELETE FROM shop.customers WHERE id = 2",
)
pipeline.run(once=True)
versions = pipeline.query(
    "SELECT id, name, country, _valid_from, _valid_to, _is_current FROM customers ORDER BY id, _sequence"
)
print(versions)
assert [(row["id"], row["country"], row["_is_current"]) for row in versions] == [
    (1, "GB", True),
    (2, "US", False),
    (3, "DE", False),
    (3, "US", True),
]

# %% [markdown]
# ## 3. A join with a small table
#
# The view followed: Emmy's orders count for America now, and Grace's are gone. If `countries.csv` changed,
# the view would follow that, too.

# %%
revenue = pipeline.query("SELECT continent, total, orders FROM revenue ORDER BY continent")
print(revenue)
assert [(row["continent"], str(row["total"]), row["orders"]) for row in revenue] == [
    ("America", "10.00", 2),
    ("Europe", "20.00", 1),
]

# %% [markdown]
# ## 4. Kafka
#
# Another pipeline writes messages in Debezium's format: first the rows, then the changes.

# %%
broker = running.enter_context(servers.kafka())
messages = Pipeline(
    name="messages",
    source=source,
    tables=["shop.orders"],
    sink={"type": "kafka", "bootstrap": broker.bootstrap, "format": "debezium"},
    state=folder / "state-kafka",
)
messages.run(once=True)
server.execute("UPDATE shop.orders SET total = 8.00 WHERE id = 12")
messages.run(once=True)

consumer = Consumer(
    {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "tutorial",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
)
consumer.subscribe(["shop.orders"])
events: list[tuple[str, int]] = []
while len(events) < 4:
    message = consumer.poll(60)
    assert message is not None and message.error() is None, message and message.error()
    value = json.loads(message.value() or b"{}")
    payload = value.get("payload", value)
    events.append((payload["op"], payload["after"]["id"]))
consumer.close()
print(events)
assert sorted(events) == [("r", 10), ("r", 12), ("r", 13), ("u", 12)]

# %% [markdown]
# ## 5. Questions about the past
#
# The relay log of the first pipeline still has every change. Spark reads it as a table: what was deleted,
# when, and in which transaction?

# %%
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
changes = (
    spark.read.format("mysql_cdc")
    .options(relayLog=str(folder / "state" / "relay"), table="shop.customers")
    .option("from", "earliest")
    .load()
)
deleted = (
    changes.where("_change_type = 'delete'")
    .select("id", "name", "_commit_timestamp", "_transaction")
    .collect()
)
spark.stop()
print(deleted)
assert [(row["id"], row["name"]) for row in deleted] == [(2, "Grace")]

# %%
running.close()
print(f"\nAll of it is in {folder}")

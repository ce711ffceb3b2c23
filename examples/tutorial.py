# %% [markdown]
# # From a database to a table that follows it
#
# This is `examples/tutorial.py`, and the notebook `examples/tutorial.ipynb`, which is made from it.
#
# It starts a private MySQL server, so nothing has to be there but Penstock. For a server of yours, replace
# `server` by its address and an account (`docs/security.md` says what that needs).

# %%
import sqlite3
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from penstock import Pipeline
from penstock.testing import servers

folder = Path(tempfile.mkdtemp(prefix="penstock-tutorial-"))
running = ExitStack()  # ends the server, and later the pipeline
server = running.enter_context(servers.mysql(private=True))
server.execute(
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(10,2))",
    "INSERT INTO shop.orders VALUES (1, 'Ada', 19.90), (2, 'Grace', 5.00)",
)

# %% [markdown]
# ## 1. A pipeline without a file
#
# The options are those of a pipeline file.

# %%
pipeline = Pipeline(
    name="tutorial",
    source={"host": server.host, "port": server.port, "user": server.user, "password": server.password},
    tables=["shop.*"],
    sink={"type": "jdbc", "url": f"sqlite://{folder}/targets.db"},
    state=folder / "state",
)

# %% [markdown]
# ## 2. What it would do
#
# Tables, types, the first read, risks. A notebook shows it as a table.

# %%
print(pipeline.plan())


# %% [markdown]
# ## 3. Run it beside this program


# %%
def rows() -> list[tuple[object, ...]]:
    """The rows of the target, without the columns that Penstock adds."""
    file = sqlite3.connect(folder / "targets.db")
    try:
        found = file.execute("SELECT * FROM shop_orders ORDER BY id")
        own = [number for number, column in enumerate(found.description) if column[0] != "_sequence"]
        return [tuple(row[number] for number in own) for row in found]
    except sqlite3.OperationalError:  # there is no table yet
        return []
    finally:
        file.close()


def wait_for(expected: list[tuple[object, ...]]) -> None:
    """Waits until the target has these rows."""
    deadline = time.monotonic() + 300
    while (found := rows()) != expected:
        if time.monotonic() > deadline:
            raise SystemExit(f"expected {expected}, found {found}")
        time.sleep(0.2)


running.enter_context(pipeline.run(background=True))
wait_for([(1, "Ada", "19.90"), (2, "Grace", "5.00")])
print("The first rows are there. Now changes of rows and of the definition:")

# %%
server.execute(
    "UPDATE shop.orders SET total = 21 WHERE id = 1",
    "DELETE FROM shop.orders WHERE id = 2",
    "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(20) DEFAULT 'new'",
)
wait_for([(1, "Ada", "21.00", "new")])
print(pipeline.status())

# %% [markdown]
# ## 4. What happened to definitions

# %%
for change in pipeline.history():
    print(change["table"], change["what"], change["decision"])

# %%
running.close()
print(f"\nThe table is in {folder}/targets.db.")

"""A mix of transactions like TPC-C's, and none of its rules for a result: new orders, payments, deliveries.

Warehouses, districts, customers and stock are filled first; then each transaction number decides, by its
remainder and CRC32, which transaction is run on which of them. The procedures count what they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.workload import DATABASE, Counts, Workload, run, thousands
from penstock.testing.servers import MySqlServer
from penstock.testing.workload import numbers

_WAREHOUSES = 4
_DISTRICTS = 10
_CUSTOMERS = 300
"""Of one district."""
_ITEMS = 2_000
"""In the stock of one warehouse."""
_TRANSACTIONS = 50_000
_CYCLE = 23
"""Of so many transactions one is a delivery, half of the others are new orders and half payments."""

_TABLES = {
    "warehouse": "w_id INT NOT NULL PRIMARY KEY, w_name VARCHAR(10) NOT NULL, w_tax DECIMAL(4,4) NOT NULL, "
    "w_ytd DECIMAL(14,2) NOT NULL",
    "district": "d_w_id INT NOT NULL, d_id TINYINT NOT NULL, d_name VARCHAR(10) NOT NULL, "
    "d_ytd DECIMAL(14,2) NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)",
    "customer": "c_w_id INT NOT NULL, c_d_id TINYINT NOT NULL, c_id INT NOT NULL, "
    "c_last VARCHAR(16) NOT NULL, c_since DATETIME NOT NULL, c_credit CHAR(2) NOT NULL, "
    "c_balance DECIMAL(14,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, "
    "c_data VARCHAR(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id)",
    "stock": "s_w_id INT NOT NULL, s_i_id INT NOT NULL, s_quantity SMALLINT NOT NULL, s_ytd INT NOT NULL, "
    "s_order_cnt INT NOT NULL, s_dist CHAR(24) NOT NULL, s_data VARCHAR(50) NOT NULL, "
    "PRIMARY KEY (s_w_id, s_i_id)",
    "orders": "o_w_id INT NOT NULL, o_d_id TINYINT NOT NULL, o_id INT NOT NULL, o_c_id INT NOT NULL, "
    "o_entry DATETIME NOT NULL, o_carrier TINYINT NULL, o_lines TINYINT NOT NULL, "
    "PRIMARY KEY (o_w_id, o_d_id, o_id)",
    "new_order": "no_w_id INT NOT NULL, no_d_id TINYINT NOT NULL, no_o_id INT NOT NULL, "
    "PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    "order_line": "ol_w_id INT NOT NULL, ol_d_id TINYINT NOT NULL, ol_o_id INT NOT NULL, "
    "ol_number TINYINT NOT NULL, ol_i_id INT NOT NULL, ol_delivered DATETIME NULL, "
    "ol_quantity TINYINT NOT NULL, ol_amount DECIMAL(8,2) NOT NULL, ol_dist CHAR(24) NOT NULL, "
    "PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    "history": "h_id INT NOT NULL PRIMARY KEY, h_w_id INT NOT NULL, h_d_id TINYINT NOT NULL, "
    "h_c_id INT NOT NULL, h_date DATETIME NOT NULL, "
    "h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL",
}

_COMPARED: dict[str, Sequence[str]] = {
    "warehouse": ("w_id", "w_name", "w_tax", "w_ytd"),
    "district": ("d_w_id", "d_id", "d_name", "d_ytd", "d_next_o_id"),
    "customer": (
        *("c_w_id", "c_d_id", "c_id", "c_last", "c_balance", "c_payment_cnt", "c_delivery_cnt", "c_data"),
    ),
    "stock": ("s_w_id", "s_i_id", "s_quantity", "s_ytd", "s_order_cnt", "s_dist", "s_data"),
    "orders": ("o_w_id", "o_d_id", "o_id", "o_c_id", "o_carrier", "o_lines"),
    "new_order": ("no_w_id", "no_d_id", "no_o_id"),
    "order_line": ("ol_w_id", "ol_d_id", "ol_o_id", "ol_number", "ol_i_id", "ol_quantity", "ol_amount"),
    "history": ("h_id", "h_w_id", "h_d_id", "h_c_id", "h_amount", "h_data"),
}

_FILL = {
    # rows, the values of the row `n`
    "warehouse": (_WAREHOUSES, "n, CONCAT('house ', n), n / 100, 300000"),
    "district": (
        _WAREHOUSES * _DISTRICTS,
        f"(n - 1) DIV {_DISTRICTS} + 1, (n - 1) % {_DISTRICTS} + 1, CONCAT('part ', n), 30000, 1",
    ),
    "customer": (
        _WAREHOUSES * _DISTRICTS * _CUSTOMERS,
        (
            f"(n - 1) DIV {_DISTRICTS * _CUSTOMERS} + 1, (n - 1) DIV {_CUSTOMERS} % {_DISTRICTS} + 1, "
            f"(n - 1) % {_CUSTOMERS} + 1, CONCAT('NAME', CRC32(n) % 1000), "
            "TIMESTAMPADD(SECOND, n, '2023-01-01'), IF(n % 10 = 0, 'BC', 'GC'), -10, 1, 0, "
            "REPEAT('customer data ', 10 + n % 20)"
        ),
    ),
    "stock": (
        _WAREHOUSES * _ITEMS,
        (
            f"(n - 1) DIV {_ITEMS} + 1, (n - 1) % {_ITEMS} + 1, 10 + n % 90, 0, 0, LEFT(SHA1(n), 24), "
            "CONCAT('stock ', SHA1(-n))"
        ),
    ),
}
_FILL_ROWS = 100

_NEW_ORDER = f"""CREATE PROCEDURE {DATABASE}.add_order(IN n INT, IN w INT, IN d INT)
BEGIN
  DECLARE o, item, amount, line INT;
  DECLARE lines_in_all INT DEFAULT 5 + CRC32(n) % 11;
  START TRANSACTION;
  UPDATE {DATABASE}.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d;
  SET @updates = @updates + ROW_COUNT();
  SELECT d_next_o_id - 1 INTO o FROM {DATABASE}.district WHERE d_w_id = w AND d_id = d;
  INSERT INTO {DATABASE}.orders VALUES (w, d, o, 1 + CRC32(n * 5) % {_CUSTOMERS},
    TIMESTAMPADD(SECOND, n, '2024-01-01'), NULL, lines_in_all);
  INSERT INTO {DATABASE}.new_order VALUES (w, d, o);
  SET @inserts = @inserts + 2, line = 1;
  WHILE line <= lines_in_all DO
    SET item = 1 + CRC32(n * 16 + line) % {_ITEMS}, amount = 1 + (n + line) % 10;
    UPDATE {DATABASE}.stock
      SET s_quantity = IF(s_quantity >= amount + 10, s_quantity, s_quantity + 91) - amount,
        s_ytd = s_ytd + amount, s_order_cnt = s_order_cnt + 1
      WHERE s_w_id = w AND s_i_id = item;
    SET @updates = @updates + ROW_COUNT();
    INSERT INTO {DATABASE}.order_line
      VALUES (w, d, o, line, item, NULL, amount, amount * (item % 100), LEFT(SHA1(n), 24));
    SET @inserts = @inserts + ROW_COUNT(), line = line + 1;
  END WHILE;
  COMMIT;
END"""

_PAYMENT = f"""CREATE PROCEDURE {DATABASE}.pay(IN n INT, IN w INT, IN d INT)
BEGIN
  DECLARE c INT DEFAULT 1 + CRC32(n * 3) % {_CUSTOMERS};
  DECLARE paid DECIMAL(6,2) DEFAULT 1 + CRC32(n) % 499900 / 100;
  START TRANSACTION;
  UPDATE {DATABASE}.warehouse SET w_ytd = w_ytd + paid WHERE w_id = w;
  SET @updates = @updates + ROW_COUNT();
  UPDATE {DATABASE}.district SET d_ytd = d_ytd + paid WHERE d_w_id = w AND d_id = d;
  SET @updates = @updates + ROW_COUNT();
  UPDATE {DATABASE}.customer SET c_balance = c_balance - paid, c_payment_cnt = c_payment_cnt + 1
    WHERE c_w_id = w AND c_d_id = d AND c_id = c;
  SET @updates = @updates + ROW_COUNT();
  INSERT INTO {DATABASE}.history VALUES (n, w, d, c, TIMESTAMPADD(SECOND, n, '2024-01-01'), paid,
    CONCAT('house ', w, ' part ', d));
  SET @inserts = @inserts + ROW_COUNT();
  COMMIT;
END"""

_DELIVERY = f"""CREATE PROCEDURE {DATABASE}.deliver(IN n INT, IN w INT)
BEGIN
  DECLARE d INT DEFAULT 1;
  DECLARE o, c INT;
  START TRANSACTION;
  WHILE d <= {_DISTRICTS} DO
    SET o = (SELECT MIN(no_o_id) FROM {DATABASE}.new_order WHERE no_w_id = w AND no_d_id = d);
    IF o IS NOT NULL THEN
      SET c = (SELECT o_c_id FROM {DATABASE}.orders WHERE o_w_id = w AND o_d_id = d AND o_id = o);
      DELETE FROM {DATABASE}.new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
      SET @deletes = @deletes + ROW_COUNT();
      UPDATE {DATABASE}.orders SET o_carrier = 1 + n % 10 WHERE o_w_id = w AND o_d_id = d AND o_id = o;
      SET @updates = @updates + ROW_COUNT();
      UPDATE {DATABASE}.order_line SET ol_delivered = TIMESTAMPADD(SECOND, n, '2024-01-02')
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
      SET @updates = @updates + ROW_COUNT();
      UPDATE {DATABASE}.customer SET c_balance = c_balance + 10 + n % 90, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = c;
      SET @updates = @updates + ROW_COUNT();
    END IF;
    SET d = d + 1;
  END WHILE;
  COMMIT;
END"""

_MIX = f"""CREATE PROCEDURE {DATABASE}.mix(IN last INT)
BEGIN
  DECLARE n INT DEFAULT 0;
  DECLARE w, d INT;
  SET @inserts = 0, @updates = 0, @deletes = 0;
  WHILE n < last DO
    SET w = 1 + CRC32(n) % {_WAREHOUSES}, d = 1 + CRC32(-n) % {_DISTRICTS};
    IF n % {_CYCLE} = {_CYCLE - 1} THEN
      CALL {DATABASE}.deliver(n, w);
    ELSEIF n % {_CYCLE} % 2 = 0 THEN
      CALL {DATABASE}.add_order(n, w, d);
    ELSE
      CALL {DATABASE}.pay(n, w, d);
    END IF;
    SET n = n + 1;
  END WHILE;
  SELECT @inserts, @updates, @deletes;
END"""


class Tpcc(Workload):
    name = "tpcc"
    about = "eight tables under a mix of transactions like TPC-C's (new orders, payments, deliveries)"

    def definitions(self, scale: float) -> Iterable[str]:
        tables = [f"CREATE TABLE {DATABASE}.{name} ({columns})" for name, columns in _TABLES.items()]
        return [*tables, _NEW_ORDER, _PAYMENT, _DELIVERY, _MIX]

    def compared(self, scale: float) -> dict[str, Sequence[str]]:
        return _COMPARED

    def write(self, server: MySqlServer, scale: float) -> Counts:
        filled = sum(
            run(
                server,
                [
                    f"INSERT INTO {DATABASE}.{table} SELECT {row} "
                    f"FROM {numbers(min(_FILL_ROWS, rows + 1 - first), first)}"
                    for first in range(1, rows + 1, _FILL_ROWS)
                ],
            )
            for table, (rows, row) in _FILL.items()
        )
        [counted] = server.query(f"CALL {DATABASE}.mix({thousands(scale, _TRANSACTIONS)})")
        inserts, updates, deletes = map(int, counted)
        return Counts(filled + inserts, updates, deletes)

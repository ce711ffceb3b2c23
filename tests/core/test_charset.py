"""Every character set of the server, byte for byte what the server itself makes of it."""

from __future__ import annotations

from tests.core.logs import decode, schema_of, select

from penstock.testing import servers


def test_every_character_set_reads_as_the_server_reads_it() -> None:
    with servers.MySqlServer() as server:
        names = [
            name
            for (name,) in select(
                server,
                "SELECT character_set_name FROM information_schema.character_sets "
                "WHERE character_set_name <> 'binary' ORDER BY 1",
            )
        ]
        assert len(names) == 40
        columns = ", ".join(f"c_{name} TEXT CHARACTER SET {name}" for name in names)
        # What each can hold of these; the rest the server turns into question marks itself.
        text = "".join(map(chr, [*range(1, 0x600), *range(0x2010, 0x2670), *range(0x3000, 0x3400), 0x1F600]))
        text += "".join(map(chr, [*range(0x4E00, 0x9FA6), *range(0xAC00, 0xD7A4), *range(0xFF01, 0xFFE7)]))
        server.execute("CREATE DATABASE d", f"CREATE TABLE d.t (id INT PRIMARY KEY, {columns})")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            for start in range(0, len(text), 10_000):
                part = text[start : start + 10_000]
                places = ", ".join(["%s"] * len(names))
                cursor.execute(f"INSERT INTO d.t VALUES ({start}, {places})", [part] * len(names))
        table = decode(server, schema_of(server, "d.t"))
        server_columns = ", ".join(f"CONVERT(c_{name} USING utf8mb4)" for name in names)
        rows = select(server, f"SELECT {server_columns} FROM d.t ORDER BY id")
        for position, name in enumerate(names):
            assert table.column(f"c_{name}").to_pylist() == [row[position] for row in rows], name

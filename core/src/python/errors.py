# The exceptions of penstock._core, as Python source so that they pickle (they cross Spark's executors).


class DecodeError(Exception):
    """Malformed input. Never a panic, never invented rows."""

    def __init__(self, reason, offset, path=None):
        super().__init__(reason, offset, path)
        self.reason = reason
        self.offset = offset
        self.path = path

    def __str__(self):
        place = f" of {self.path}" if self.path is not None else ""
        return f"{self.reason} at offset {self.offset}{place}"


class SchemaMismatch(DecodeError):
    """A table map, row image or value does not fit the TableSchema it should be decoded with."""

    def __init__(self, reason, offset, path=None, table="", lacks=""):
        super().__init__(reason, offset, path)
        self.args = (reason, offset, path, table, lacks)
        self.table = table
        self.lacks = lacks


class ServerError(Exception):
    """An ERR packet of the server."""

    def __init__(self, code, sqlstate, message):
        super().__init__(code, sqlstate, message)
        self.code = code
        self.sqlstate = sqlstate
        self.message = message

    def __str__(self):
        return f"({self.code}, {self.sqlstate}) {self.message}"

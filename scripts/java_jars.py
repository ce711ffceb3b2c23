"""Compiles the Java classes in src/penstock into the jars beside them: `python scripts/java_jars.py`. With
`--check` it only compares.

The compiler is Janino, which PySpark brings, so no JDK is needed, and equal sources give equal bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyspark

from penstock.artifacts.maven import fetch, java
from penstock.sinks.hbase.registration import FRAMES, FRAMES_JAR, HBASE
from penstock.sinks.lake.delta.location import (
    DIRECTORY_LOG_STORE,
    DIRECTORY_LOG_STORE_JAR,
    LOG_STORE,
    LOG_STORE_JAR,
)
from penstock.sinks.lake.delta.registration import DELTA
from penstock.sinks.lake.iceberg.catalog_options import METADATA_CACHE
from penstock.sinks.lake.iceberg.registration import ICEBERG, METADATA_CACHE_JAR
from penstock.testing.canal.client import CLIENT, CLIENT_JAR, CLIENT_JARS

_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Jar:
    """A jar with one class and those inside it. `uses`: coordinates of the jars that the class uses, beside
    Spark's."""

    path: Path
    name: str
    uses: Iterable[str]

    @property
    def source(self) -> Path:
        return self.path.parent / "java" / f"{self.name.rpartition('.')[2]}.java"


_DELTA_STORAGE = [one for one in DELTA.jars if ":delta-storage:" in one]

JARS = (
    Jar(LOG_STORE_JAR, LOG_STORE, _DELTA_STORAGE),
    Jar(DIRECTORY_LOG_STORE_JAR, DIRECTORY_LOG_STORE, _DELTA_STORAGE),
    Jar(FRAMES_JAR, FRAMES, HBASE.jars),
    Jar(METADATA_CACHE_JAR, METADATA_CACHE, ICEBERG.jars),
    Jar(CLIENT_JAR, CLIENT, CLIENT_JARS),
)


def compiled(wanted: Jar) -> bytes:
    """The jar."""
    spark = sorted(Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"))
    compiler = [jar for jar in spark if jar.name.startswith(("janino-", "commons-compiler-"))]
    used = [jar for jar in spark if jar.name.startswith(("hadoop-client-api-", "slf4j-api-"))]
    used += [fetch(one)[0] for one in wanted.uses]
    with tempfile.TemporaryDirectory() as folder:
        command = [java(), "-cp", ":".join(map(str, compiler)), _COMPILER, "-d", folder]
        command += ["-classpath", ":".join(map(str, used)), str(wanted.source)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        classes = sorted(Path(folder).rglob("*.class"))
        if done.returncode or not classes:
            raise SystemExit(f"{wanted.source} does not compile:\n{done.stdout}{done.stderr}")
        code = {str(one.relative_to(folder)): one.read_bytes() for one in classes}
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _LONG_AGO), "Manifest-Version: 1.0\r\n\r\n")
        for name, content in code.items():
            jar.writestr(zipfile.ZipInfo(name, _LONG_AGO), content)
    return made.getvalue()


def main() -> None:
    different = []
    for one in JARS:
        jar = compiled(one)
        if one.path.exists() and one.path.read_bytes() == jar:
            print(f"{one.path.name} is up to date")
            continue
        different.append(one)
        if "--check" in sys.argv:
            print(f"{one.path.name} differs: run scripts/java_jars.py")
        else:
            one.path.write_bytes(jar)
            print(f"wrote {one.path.name} ({len(jar)} bytes)")
    sys.exit(1 if different and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()

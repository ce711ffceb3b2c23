"""Compiles the log store for Delta on S3 into src/penstock/sinks/lake/delta/log_store.jar: `python
scripts/log_store.py`. With `--check` it only compares.

The compiler is Janino, which PySpark brings, so no JDK is needed, and equal sources give equal bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import pyspark

from penstock.artifacts.maven import fetch, java
from penstock.sinks.lake.delta.location import LOG_STORE, LOG_STORE_JAR
from penstock.sinks.lake.delta.registration import DELTA

SOURCE = LOG_STORE_JAR.parent / "java" / f"{LOG_STORE.rpartition('.')[2]}.java"
_CLASS = f"{LOG_STORE.replace('.', '/')}.class"
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def compiled() -> bytes:
    """The jar."""
    spark = sorted(Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"))
    compiler = [jar for jar in spark if jar.name.startswith(("janino-", "commons-compiler-"))]
    used = [jar for jar in spark if jar.name.startswith(("hadoop-client-api-", "slf4j-api-"))]
    delta = [fetch(one)[0] for one in DELTA.jars if ":delta-storage:" in one]
    with tempfile.TemporaryDirectory() as folder:
        command = [java(), "-cp", ":".join(map(str, compiler)), _COMPILER, "-d", folder]
        command += ["-classpath", ":".join(map(str, [*used, *delta])), str(SOURCE)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode or not (Path(folder) / _CLASS).exists():
            raise SystemExit(f"{SOURCE} does not compile:\n{done.stdout}{done.stderr}")
        code = (Path(folder) / _CLASS).read_bytes()
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as jar:
        jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _LONG_AGO), "Manifest-Version: 1.0\r\n\r\n")
        jar.writestr(zipfile.ZipInfo(_CLASS, _LONG_AGO), code)
    return made.getvalue()


def main() -> None:
    jar = compiled()
    name = LOG_STORE_JAR.name
    if "--check" in sys.argv:
        same = LOG_STORE_JAR.read_bytes() == jar
        print(f"{name} is up to date" if same else f"{name} differs: run scripts/log_store.py")
        sys.exit(0 if same else 1)
    LOG_STORE_JAR.write_bytes(jar)
    print(f"wrote {name} ({len(jar)} bytes)")


if __name__ == "__main__":
    main()

"""Files from Maven Central, fetched once into a cache of our own.

The Ivy jar inside PySpark does the fetching, so nothing but Java is needed. An artifact is complete or
absent: it is fetched into a directory of its own process and renamed into place, and a lock file per artifact
lets one process fetch while the others wait. Nothing outside the cache is written (not even `~/.ivy2`).
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import ConfigError

JAVA_MIN = 17
"""Spark 4 runs on Java 17 and 21."""

_JAVA_CURE = (
    "Install a Java 17 runtime (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
)


def cache_directory() -> Path:
    """`$PENSTOCK_CACHE`, else `$XDG_CACHE_HOME/penstock`, else `~/.cache/penstock`."""
    if chosen := os.environ.get("PENSTOCK_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def java() -> str:
    """The Java that Spark will start (`$JAVA_HOME/bin/java`, else the one on the PATH), known to be new
    enough."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None:
        raise ConfigError("Spark needs Java, and no `java` is on the PATH.", hint=_JAVA_CURE)
    _check_java(path)
    return path


@functools.cache
def _check_java(path: str) -> None:
    """Asked once a process: it takes a JVM to answer."""
    try:
        answer = subprocess.run([path, "-version"], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, but {path} cannot be run: {error}.", hint=_JAVA_CURE) from error
    version = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    major = 0 if version is None else int(version[2] or 0) if version[1] == "1" else int(version[1])
    if major < JAVA_MIN:
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or newer; {path} is {major or 'unknown'}.", hint=_JAVA_CURE
        )


def fetch(coordinates: str, *, transitive: bool = False) -> list[Path]:
    """The jars of `group:name:version`: the artifact itself first, then, if `transitive`, what it needs at
    runtime.

    Returns at once when they are in the cache. `$PENSTOCK_IVY_SETTINGS` names an Ivy settings file for
    networks that reach Maven Central only through a mirror.
    """
    group, name, version = coordinates.split(":")
    target = cache_directory() / "artifacts" / group / f"{name}-{version}{'-all' if transitive else ''}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(target.name + ".lock")):
            if not target.is_dir():
                _retrieve(group, name, version, transitive=transitive, target=target)
    main = f"{name}-{version}.jar"
    return sorted(target.glob("*.jar"), key=lambda jar: (jar.name != main, jar.name))


def _retrieve(group: str, name: str, version: str, *, transitive: bool, target: Path) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        command = [java(), "-jar", str(_ivy_jar()), "-cache", str(staging / "ivy")]
        if settings := os.environ.get("PENSTOCK_IVY_SETTINGS"):
            command += ["-settings", settings]
        command += [] if transitive else ["-notransitive"]
        command += ["-confs", "default", "-dependency", group, name, version]
        # Without a revision in the pattern two versions of one module could not both be seen.
        command += ["-retrieve", str(staging / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
        answer = subprocess.run(command, check=False, capture_output=True, text=True, cwd=staging)
        jars = staging / "jars"
        if answer.returncode != 0 or not (jars / f"{name}-{version}.jar").is_file():
            raise ConfigError(
                f"{group}:{name}:{version} could not be fetched from Maven Central: "
                f"{_reason(answer.stdout)}.",
                hint="Check the network and the proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...), name a "
                f"mirror in an Ivy settings file ($PENSTOCK_IVY_SETTINGS), or put the jar into {target}.",
            )
        jars.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _reason(output: str) -> str:
    """The lines in which Ivy says what went wrong, on one line."""
    telling = [
        line.strip() for line in output.splitlines() if re.search(r"not found|FAILED|ERROR|Exception", line)
    ]
    return "; ".join(telling[:3]) or "Ivy gave no reason"


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for jar in sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")):
            return jar
    raise ConfigError("PySpark is not installed, or has no jars.", hint="pip install 'pyspark==4.1.3'")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

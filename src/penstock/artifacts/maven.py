"""Fetches jars from Maven Central into Penstock's own cache, each once.

The Ivy jar inside PySpark fetches them, so only Java is needed. An artifact in the cache is always complete:
it is fetched into a temporary directory, which is then renamed. A lock file per artifact lets one process
fetch while others wait. Nothing outside the cache is written, not even `~/.ivy2`.

Every jar is pinned: its SHA-256 is in the source tree. It is checked before a jar enters the cache, and once
in each process before a cached jar is used. So neither a mirror nor anybody who can write to the cache
decides what Spark runs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.artifacts.pinned import SHA256
from penstock.disk import lock
from penstock.disk.digest import sha256_of
from penstock.errors import ConfigError

JAVA_MIN = 17
"""Spark 4 runs on Java 17 and 21."""

FETCH_SECONDS = 900
"""Time limit for one artifact with its dependencies. Without it, Ivy would wait forever for a mirror that
accepts a connection and never answers."""

_JAVA_CURE = (
    "Install a Java 17 runtime (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
)


def cache_directory() -> Path:
    """`$PENSTOCK_CACHE`, else `$XDG_CACHE_HOME/penstock`, else `~/.cache/penstock`."""
    if chosen := os.environ.get("PENSTOCK_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def make_in_cache(path: Path) -> None:
    """Creates a directory of the cache if it is missing. Raises `ConfigError` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The cache directory {path} cannot be created: {error.strerror}.",
            hint="Set PENSTOCK_CACHE to a directory that this account may write.",
        ) from error


def java() -> str:
    """The Java that Spark will start: `$JAVA_HOME/bin/java`, else the one on the PATH. Raises `ConfigError`
    if there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None:
        raise ConfigError("Spark needs Java, and no `java` is on the PATH.", hint=_JAVA_CURE)
    _check_java(path)
    return path


@functools.cache
def _check_java(path: str) -> None:
    """Runs once per process and path, because it starts a JVM."""
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


def fetch(coordinates: str, *, transitive: bool = False, pins: Mapping[str, str] = SHA256) -> list[Path]:
    """Returns the jars of `group:name:version` or `group:name:version:classifier`: the artifact itself first,
    then, if `transitive`, its runtime dependencies. `pins` has the SHA-256 of each by file name.

    `$PENSTOCK_IVY_SETTINGS` names an Ivy settings file for networks that reach Maven Central only through a
    mirror. Raises `ConfigError` if a jar cannot be fetched or does not have its pinned SHA-256.
    """
    target = _place(coordinates, "-all" if transitive else "")
    if not target.is_dir():
        make_in_cache(target.parent)
        path = target.with_name(target.name + ".lock")
        with lock.held(path, wait_seconds=FETCH_SECONDS) as ours:
            if ours is None:
                raise ConfigError(
                    f"Another process has been fetching {coordinates} for {FETCH_SECONDS} s.",
                    hint=f"Wait for it, or end it{lock.by_holder(path)} and try again.",
                )
            if not target.is_dir():
                _retrieve(coordinates, transitive=transitive, target=target, pins=pins)
    main = f"{_stem(coordinates)}.jar"
    jars = sorted(target.glob("*.jar"), key=lambda jar: (jar.name != main, jar.name))
    if not jars or jars[0].name != main:
        raise ConfigError(
            f"{target} does not hold {main}.", hint=f"Remove {target}: the jar is then fetched again."
        )
    if unexpected := _unexpected(jars, pins):
        raise ConfigError(
            f"{target / unexpected[0]} is not the file that Penstock expects: {unexpected[1]}. It is not "
            "used.",
            hint=f"Find out who changed it, and remove {target}: the jar is then fetched again.",
        )
    return jars


def fetch_all(wanted: Sequence[str], *, pins: Mapping[str, str] = SHA256) -> list[Path]:
    """The jars of several `group:name:version`, without their dependencies, as `fetch` returns them. Those
    that are missing are fetched together, because each run of Ivy takes seconds."""
    missing = [one for one in wanted if not _place(one).is_dir()]
    if len(missing) > 1:
        with contextlib.suppress(ConfigError):  # `fetch` says which one cannot be had
            _retrieve_together(missing, pins)
    return [fetch(one, pins=pins)[0] for one in wanted]


def _place(coordinates: str, suffix: str = "") -> Path:
    """The directory of an artifact in the cache."""
    group = coordinates.partition(":")[0]
    return cache_directory() / "artifacts" / group / f"{_stem(coordinates)}{suffix}"


def _stem(coordinates: str) -> str:
    _, name, version, *classifier = coordinates.split(":")
    return "-".join([name, version, *classifier])


def _unexpected(jars: Sequence[Path], pins: Mapping[str, str]) -> tuple[str, str] | None:
    """The first jar that does not have its pinned SHA-256, and how it differs."""
    for jar in jars:
        wanted, found = pins.get(jar.name), sha256(jar)
        if wanted is None:
            return jar.name, f"its SHA-256 is {found}, and none is pinned for this name"
        if found != wanted:
            return jar.name, f"its SHA-256 is {found}, not {wanted}"
    return None


def sha256(path: Path) -> str:
    """Computed once per process for an unchanged file: 50 MB take 40 ms."""
    status = path.stat()
    return _sha256(path, status.st_size, status.st_mtime_ns, status.st_ino)


@functools.cache
def _sha256(path: Path, *state: int) -> str:
    return sha256_of(path)


_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
 <info organisation="penstock" module="fetch"/>
 <dependencies>{}</dependencies>
</ivy-module>
"""
_DEPENDENCY = """\
<dependency org="{}" name="{}" rev="{}" transitive="{}">
  <artifact name="{}" type="jar" ext="jar"{}/>
 </dependency>"""
"""A file for Ivy, whose command line has no word for classifiers, nor for several artifacts."""


def _retrieve(coordinates: str, *, transitive: bool, target: Path, pins: Mapping[str, str]) -> None:
    group, name, version, *classifier = coordinates.split(":")
    main = f"{_stem(coordinates)}.jar"
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        if classifier:
            asked = _asked_by_file(staging, [coordinates], transitive=transitive)
        else:
            asked = [] if transitive else ["-notransitive"]
            asked += ["-confs", "default", "-dependency", group, name, version]
        said, jars = _ivy(staging, asked, coordinates), staging / "jars"
        if said is not None or not (jars / main).is_file():
            raise ConfigError(
                f"{coordinates} could not be fetched from Maven Central: {_reason(said or '')}.",
                hint="Check the network and the proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...), name a "
                f"mirror in an Ivy settings file ($PENSTOCK_IVY_SETTINGS), or put the jar into {target}.",
            )
        if unexpected := _unexpected(sorted(jars.glob("*.jar")), pins):
            raise ConfigError(
                f"{unexpected[0]} was fetched for {coordinates}, but it is not the file that "
                f"Penstock expects: {unexpected[1]}. It was deleted.",
                hint="Somebody between here and Maven Central changed it, or the mirror "
                "($PENSTOCK_IVY_SETTINGS) has another file of this name. Fetch it on another network.",
            )
        jars.rename(target)  # a directory: if another process has fetched it meanwhile, this fails
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _retrieve_together(wanted: Sequence[str], pins: Mapping[str, str]) -> None:
    """Puts those that can be fetched, and are what is expected, into the cache."""
    places = {one: _place(one) for one in wanted}
    root = cache_directory() / "artifacts"
    for place in {root, *(one.parent for one in places.values())}:
        make_in_cache(place)
    staging = Path(tempfile.mkdtemp(prefix=".together-", dir=root))
    try:
        _ivy(staging, _asked_by_file(staging, wanted, transitive=False), f"{len(wanted)} jars")
        for one, place in places.items():
            jar = staging / "jars" / f"{_stem(one)}.jar"
            if not jar.is_file() or _unexpected([jar], pins):
                continue
            (staging / _stem(one)).mkdir()
            jar.rename(staging / _stem(one) / jar.name)
            with contextlib.suppress(OSError):  # another process has fetched it meanwhile
                (staging / _stem(one)).rename(place)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _asked_by_file(staging: Path, wanted: Sequence[str], *, transitive: bool) -> list[str]:
    """Arguments of Ivy, with a file in `staging`."""
    dependencies = []
    for coordinates in wanted:
        group, name, version, *classifier = coordinates.split(":")
        classified = f' m:classifier="{classifier[0]}"' if classifier else ""
        named = (group, name, version, str(transitive).lower(), name, classified)
        dependencies.append(_DEPENDENCY.format(*named))
    (staging / "ivy.xml").write_text(_MODULE.format("\n ".join(dependencies)), "utf-8")
    return ["-confs", "default", "-ivy", str(staging / "ivy.xml")]


def _ivy(staging: Path, asked: Sequence[str], what: str) -> str | None:
    """Runs Ivy, which puts jars into `staging/jars`. Returns what it said if it failed."""
    command = [java(), "-jar", str(_ivy_jar()), "-cache", str(staging / "ivy")]
    if settings := os.environ.get("PENSTOCK_IVY_SETTINGS"):
        command += ["-settings", settings]
    # The revision is in the pattern, so that two versions of one module get two files.
    command += [*asked, "-retrieve", str(staging / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    try:
        answer = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=staging, timeout=FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{what} could not be fetched within {FETCH_SECONDS} s.",
            hint="Check the network and the proxy, or name a mirror that answers in an Ivy settings file "
            "($PENSTOCK_IVY_SETTINGS).",
        ) from None
    return None if answer.returncode == 0 else answer.stdout


def _reason(output: str) -> str:
    """Ivy's error messages, on one line."""
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

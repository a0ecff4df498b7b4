"""Where an installation keeps its things, and what it says about ports."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from openface.installation import Installation, InstallationError, free_port_base, keep_secret


def test_keys_are_made_once_and_only_we_can_read_them(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "state")
    installation.prepare()
    keys = {path.name: path.read_text() for path in (tmp_path / "state" / "keys").iterdir()}

    installation.prepare()

    assert sorted(keys) == ["openface_encryption_keys", "openface_lease_keys", "secret_key"]
    assert {path.name: path.read_text() for path in (tmp_path / "state" / "keys").iterdir()} == keys
    assert len(set(keys.values())) == 3
    for path in (tmp_path / "state" / "keys").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_others_may_pass_the_state_directory_but_not_look_into_it(tmp_path: Path) -> None:
    Installation(tmp_path / "state").prepare()

    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o711


def test_an_existing_secret_is_kept(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine\n")

    assert keep_secret(tmp_path / "secret", lambda: "new") == "mine"


def test_a_busy_port_is_named_with_a_way_out() -> None:
    base = free_port_base()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base + 1))
        other.listen()

        with pytest.raises(InstallationError, match=rf"Port {base + 1} of this machine .* PORT_BASE=\d+"):
            Installation(Path("unused"), port_base=base).check_ports()


def test_ports_in_a_row_belong_to_web_data_and_gateways() -> None:
    installation = Installation(Path("unused"), port_base=9000)

    assert (installation.web_port, installation.data_port, installation.gateway_port(1)) == (9000, 9001, 9003)


def test_a_public_address_that_somebody_set_is_respected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PUBLIC_BASE_URL", "https://openface.example")

    assert Installation(tmp_path).environment()["PUBLIC_BASE_URL"] == "https://openface.example"

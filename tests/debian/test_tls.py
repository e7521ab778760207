"""A server that speaks TLS itself, and wants a certificate from its clients too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server, find_free_port
from tests.integration.test_beat import declare


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with an authority of one's own, and a certificate each for the server and for a client."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("127.0.0.1", "client"):
        made = authority.issue_cert(name)
        made.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    return tmp_path


@pytest.fixture
def url(debian_server: Path, certificates: Path) -> Iterator[str]:
    port = find_free_port()
    config = {
        "tls-port": port,
        "tls-ca-cert-file": str(certificates / "ca.pem"),
        "tls-cert-file": str(certificates / "127.0.0.1.pem"),
        "tls-key-file": str(certificates / "127.0.0.1.key"),
    }
    with Server(debian_server, config=config) as server:
        with redis.Redis.from_url(server.url) as admin:
            admin.execute_command("ACL", "SETUSER", "beat", "on", ">secret", "~*", "+@all")
        query = "&".join(
            f"{name}={certificates / file}"
            for name, file in [
                ("ssl_ca_certs", "ca.pem"),
                ("ssl_certfile", "client.pem"),
                ("ssl_keyfile", "client.key"),
            ]
        )
        yield f"rediss://beat:secret@127.0.0.1:{port}/0?{query}"


def test_a_beat_works_over_tls_with_an_own_authority_a_client_certificate_and_a_user(url: str) -> None:
    broker = RedisBroker(url=url)
    distcron = declare(broker, 1)
    assert Beat(distcron).run_once()
    assert [one.name for one in distcron.schedules.list()] == ["job-0"]
    distcron.close()
    broker.client.close()

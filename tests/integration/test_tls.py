"""``rediss://`` with an authority of one's own, and a user with a password: by a proxy that speaks TLS.

The wheel's server knows no TLS; Debian's does, see tests/debian.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
import trustme
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import StoreRefused, StoreUnavailable
from dramatiq_distcron.server import Server
from tests.integration.conftest import Running
from tests.integration.test_beat import declare, per_tick
from tests.proxies import Proxy
from tests.support import wait_until

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def proxy(server: Server, authority: trustme.CA) -> Iterator[Proxy]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    assert server.port is not None
    with Proxy(server.port, context) as running:
        yield running


@pytest.fixture
def certificate(authority: trustme.CA, tmp_path: Path) -> Path:
    """Of the authority that signed the server's."""
    file = tmp_path / "own-ca.pem"
    authority.cert_pem.write_to_path(file)
    return file


@pytest.fixture
def user(server: Server, namespace: str) -> Iterator[str]:
    """A user with a password that needs quoting."""
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", namespace, "on", ">s/e@c", f"~{namespace}", f"~{namespace}:*", "+@all")
        yield f"{namespace}:{quote('s/e@c', safe='')}"
        admin.execute_command("ACL", "DELUSER", namespace)


def url_of(proxy: Proxy, user: str, certificate: Path) -> str:
    return proxy.url.replace("://", f"://{user}@") + f"?ssl_ca_certs={certificate}"


def test_a_beat_takes_over_the_brokers_authority_user_and_password(
    proxy: Proxy, certificate: Path, user: str, start_beat: Start, namespace: str
) -> None:
    distcron = declare(RedisBroker(url=url_of(proxy, user, certificate), namespace=namespace), 1)
    running = start_beat(distcron)
    wait_until(lambda: per_tick(distcron), "a tick")
    assert distcron.status().redis["url"] == f"rediss://{namespace}:***@127.0.0.1:{proxy.port}/0"
    running.stop()
    assert running.error is None
    distcron.broker.client.close()  # type: ignore[attr-defined]


def test_a_certificate_of_somebody_else_is_a_server_that_is_not_there(proxy: Proxy, user: str, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        Beat(install(RedisBroker(url=url_of(proxy, user, other)))).run_once()


def test_a_wrong_password_is_refused_at_start_and_not_shown(proxy: Proxy, certificate: Path, user: str) -> None:
    url = url_of(proxy, user.partition(":")[0] + ":geheim", certificate)
    with pytest.raises(StoreRefused, match="does not let us in") as refusal:
        Beat(install(RedisBroker(url=url))).run_once()
    assert "geheim" not in str(refusal.value)

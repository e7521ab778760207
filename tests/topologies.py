"""Several servers that belong together, on the loopback interface: Sentinel with replicas, and a cluster."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from dramatiq_distcron.server import Server
from tests.support import wait_until

__all__ = ["SERVICE", "Cluster", "Sentinels"]

#: What Sentinel calls the master and its replicas.
SERVICE = "service"
_SLOTS = 16384


class _Together:
    """Starts servers one by one, and stops all of them at the end."""

    def __init__(self, binary: Path | None) -> None:
        self._binary = binary
        self._stack = ExitStack()

    def _start(self, **options: Any) -> Server:
        return self._stack.enter_context(Server(self._binary, **options))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


class Sentinels(_Together):
    """A master, two replicas, and three sentinels that watch them.

    Parameters:
      binary: of all of them.
      config: further directives of the master and the replicas.
    """

    def __init__(self, binary: Path | None, **config: str | int) -> None:
        super().__init__(binary)
        self._config = {name.replace("_", "-"): value for name, value in config.items()}
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []

    def __enter__(self) -> Sentinels:
        first = self._start(config=self._config)
        follows = {**self._config, "replicaof": f"127.0.0.1 {first.port}"}
        self.servers = [first, *(self._start(config=follows) for _ in range(2))]
        config = {
            f"sentinel monitor {SERVICE}": f"127.0.0.1 {first.port} 2",
            # Longer than a machine under load stands still for: a failover is to come when a test wants it.
            f"sentinel down-after-milliseconds {SERVICE}": 2000,
            f"sentinel failover-timeout {SERVICE}": 3000,
        }
        self.sentinels = [self._start(mode="sentinel", config=config) for _ in range(3)]
        self.asked = self.manager(socket_timeout=1)
        self.await_whole()
        return self

    def manager(self, **options: Any) -> Sentinel:
        """A client that asks the sentinels. Closed at the end."""
        manager = Sentinel([("127.0.0.1", one.port) for one in self.sentinels], **options)
        for one in manager.sentinels:
            self._stack.callback(one.close)
        return manager

    def client(self, **options: Any) -> redis.Redis:
        """A client of whoever is the master; ``options`` are those of the manager. Closed at the end."""
        client: redis.Redis = self.manager(socket_timeout=1, **options).master_for(SERVICE)
        self._stack.callback(client.close)
        return client

    @property
    def master(self) -> Server | None:
        """The one that most sentinels take for the master now."""
        with suppress(MasterNotFoundError):
            _, port = self.asked.discover_master(SERVICE)
            return next(one for one in self.servers if one.port == port)
        return None

    def kill_the_master(self) -> Server:
        """SIGKILL. Returns the one that was killed; it is to be restarted by ``await_whole``."""
        master = self.master
        assert master is not None
        master.kill()
        return master

    def fail_over(self) -> Server:
        """``SENTINEL FAILOVER``: the master is well, and is told to stand back. Returns the one it was."""
        master = self.master
        assert master is not None
        self.asked.sentinels[0].execute_command("SENTINEL", "FAILOVER", SERVICE)
        return master

    def await_another(self, than: Server) -> None:
        """Waits until another one is the master, for every sentinel."""
        wait_until(lambda: self._ports() not in ([], [than.port]), "another master", 60)

    def _ports(self) -> list[int | None]:
        """The ports that are the master's for one sentinel or another; none if that is not known to be one alone."""
        with suppress(redis.RedisError):
            ports = {client.sentinel_masters()[SERVICE]["port"] for client in self.asked.sentinels}
            return list(ports) if len(ports) == 1 else []
        return []

    def await_whole(self) -> None:
        """Restarts what was killed, and waits until two replicas follow and every sentinel knows of it."""
        for one in self.servers:
            if not one.alive:
                one.restart()
        wait_until(self._is_whole, "a master with two replicas, known to three sentinels", 60)

    def _is_whole(self) -> bool:
        with suppress(redis.RedisError):
            states = [client.sentinel_masters()[SERVICE] for client in self.asked.sentinels]
            agreed = len({(state["ip"], state["port"], state["flags"]) for state in states}) == 1
            known = all(state["num-other-sentinels"] == 2 and state["num-slaves"] == 2 for state in states)
            return agreed and known and self._followers() == 2
        return False

    def _followers(self) -> int:
        master = self.master
        if master is None:
            return 0
        with redis.Redis.from_url(master.url) as client:
            told = client.info("replication")
        return sum(told.get(f"slave{n}", {}).get("state") == "online" for n in range(3))


class Cluster(_Together):
    """Nodes that share the slots among them, without replicas.

    Parameters:
      binary: of all of them.
      folder: where they keep what they know of each other, and their data.
      size: how many.
    """

    def __init__(self, binary: Path | None, folder: Path, size: int = 3) -> None:
        super().__init__(binary)
        self._folder = folder
        self._size = size
        self.nodes: list[Server] = []

    def __enter__(self) -> Cluster:
        config = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": 2000}
        self.nodes = [self._start(directory=self._folder / f"node-{n}", config=config) for n in range(self._size)]
        share = _SLOTS // self._size + 1
        for number, node in enumerate(self.nodes):
            slots = range(number * share, min(_SLOTS, (number + 1) * share))
            with redis.Redis.from_url(node.url) as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        self.await_whole()
        return self

    def await_whole(self) -> None:
        """Waits until the cluster is up, as every node sees it."""
        wait_until(self._is_whole, "every node to know of all slots")

    def client(self) -> redis.RedisCluster:
        """A client of the cluster. Closed at the end."""
        client = redis.RedisCluster("127.0.0.1", self.nodes[0].port)
        self._stack.callback(client.close)
        return client

    def node_of(self, key: str) -> Server:
        """The node that has ``key``."""
        port = self.client().get_node_from_key(key).port
        return next(one for one in self.nodes if one.port == port)

    def _is_whole(self) -> bool:
        with suppress(redis.RedisError):
            told = []
            for node in self.nodes:
                with redis.Redis.from_url(node.url) as client:
                    told.append(client.execute_command("CLUSTER INFO"))
            return all(one["cluster_state"] == "ok" and one["cluster_known_nodes"] == str(self._size) for one in told)
        return False

"""A RabbitMQ of our own: on free ports of the loopback interface, in a private folder, gone when we are."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pika

from dramatiq_distcron.server import find_free_port, release, spawn
from tests.support import wait_until

#: Where Debian's package has it: the script itself, without the wrapper that changes the user.
PROGRAM = Path(os.environ.get("DISTCRON_RABBITMQ", "/usr/lib/rabbitmq/bin/rabbitmq-server"))


class Node:
    """One RabbitMQ, and the name service (epmd) that Erlang wants beside it. A missing one is an error."""

    def __init__(self) -> None:
        assert PROGRAM.exists(), f"{PROGRAM} is missing: apt-get install rabbitmq-server"
        self.port = find_free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="distcron-rabbitmq-"))
        self._environ = self._settings()
        self._names: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Starts it, on the same port and with the same messages, and waits until it serves."""
        if self._names is None:
            self._names = self._spawn(["epmd", "-address", "127.0.0.1", "-port", self._environ["ERL_EPMD_PORT"]])
            wait_until(lambda: _listens(int(self._environ["ERL_EPMD_PORT"])), "epmd")
        if self._process is not None:
            release(self._process)
        with (self._folder / "log").open("ab") as log:
            self._process = self._spawn([str(PROGRAM)], stdout=log, stderr=subprocess.STDOUT)
        wait_until(self._serves, "RabbitMQ", 90)

    def log(self) -> str:
        """What it wrote, over all its starts."""
        return (self._folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        """SIGTERM, as a service manager does. Messages that are persistent stay."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: goes on after ``pause()``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Node:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends both and removes the folder."""
        for process in (self._process, self._names):
            if process is not None:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        for process in (self._process, self._names):
            if process is not None:
                release(process)

    def _spawn(self, command: list[str], **streams: object) -> subprocess.Popen[bytes]:
        streams.setdefault("stdout", subprocess.DEVNULL)
        streams.setdefault("stderr", subprocess.DEVNULL)
        return spawn(
            command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            remove=[self._folder],
            **streams,  # type: ignore[arg-type]
        )

    def _settings(self) -> dict[str, str]:
        folder = self._folder
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text("loopback_users.guest = true\nvm_memory_high_watermark.relative = 0.9\n")
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            # Erlang's cookie lies there.
            "HOME": str(folder),
            # The script becomes the server, instead of staying as its parent.
            "detached": "1",
            "ERL_EPMD_PORT": str(find_free_port()),
            "RABBITMQ_NODENAME": f"distcron-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(find_free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            # Two cores are shared with others.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-4000:]
        if not _listens(self.port):
            return False
        with suppress(pika.exceptions.AMQPError):
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
            return True
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

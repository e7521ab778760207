"""Where the log goes and how it looks: as Dramatiq's, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

from ..errors import ConfigurationError

__all__ = ["set_up_logging"]

_FORMAT = "[%(asctime)s] [PID %(process)d] [%(threadName)s] [%(name)s] [%(levelname)s] %(message)s"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(verbose: int, log_file: str | None, log_format: str) -> None:
    """Sends the log to ``log_file``, or to stderr. Raises ``ConfigurationError`` if it cannot be written."""
    try:
        handler = logging.FileHandler(log_file, encoding="utf-8") if log_file else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise ConfigurationError(f"The log file {log_file} cannot be written: {error.strerror}.") from None
    handler.setFormatter(_JsonFormatter() if log_format == "json" else logging.Formatter(_FORMAT))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])

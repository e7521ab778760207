"""Imported by the workers of a demonstration or of ``dev``: they must not outlive Dramatiq's main process.

That one is killed with us, and its worker processes are no children of ours.
"""

from __future__ import annotations

import multiprocessing

from ..server import die_with_parent

_parent = multiprocessing.parent_process()
# With a fork server the parent of a worker is that server, which ends with the main process.
_forked = _parent is not None and multiprocessing.get_start_method(allow_none=True) in (None, "fork")
die_with_parent(_parent.pid if _parent is not None and _forked else None)

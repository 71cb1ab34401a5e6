"""Runs a command that gets SIGTERM when its parent ends.

python -m penstock.processes.attached PARENT_PROCESS_ID PROGRAM [ARGUMENT...]
"""

from __future__ import annotations

import os
import signal
import sys

from penstock.processes.parent import end_with_parent

if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # the caller's command; the request above outlives exec

"""A process of another user, for root's tests of who may do what."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def acting(user: int, group: int, act: Callable[[], object], umask: int = 0o002) -> int:
    """Exit code of a process of that user which does ``act``; 13 where something is forbidden."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
        os.umask(umask)
        act()
        code = 0
    except PermissionError as error:
        print(error, file=sys.stderr, flush=True)
        code = 13
    except BaseException:  # noqa: BLE001  (only this process may go on)
        traceback.print_exc()
    finally:
        os._exit(code)

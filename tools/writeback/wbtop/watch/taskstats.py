# SPDX-License-Identifier: GPL-2.0
"""What delay accounting knows of a process's sleeps for dirty memory, asked of the kernel by netlink (taskstats).

The structure grows with the kernel, and its first number is its version.  See Documentation/accounting/taskstats.rst.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

GENERIC = 16  # NETLINK_GENERIC
CONTROL = 16  # GENL_ID_CTRL
GET_FAMILY, FAMILY_NAME, FAMILY_ID = 3, 2, 1
GET, BY_TGID = 1, 2  # TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_TGID
STATS, OF_TGID = 3, 5  # TASKSTATS_TYPE_STATS, TASKSTATS_TYPE_AGGR_TGID
ERROR = 2  # NLMSG_ERROR
# Version and size of the structure -> where the series' two numbers are: 6.12 and 7.3.
KNOWN = {(14, 448): 432, (18, 736): 688}
_HEADER = struct.Struct("=IHHII")
_GENERIC_HEADER = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_PAIR = struct.Struct("=QQ")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each; ends at what is none."""
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[_ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]


def sleeps(stats: bytes) -> tuple[int, int] | None:
    """Number and ns of a struct taskstats; None where it does not have them."""
    at = KNOWN.get((struct.unpack_from("=H", stats)[0], len(stats))) if len(stats) > 1 else None
    if at is None:
        return None
    count, ns = _PAIR.unpack_from(stats, at)
    return count, ns


class Taskstats:
    """A socket to the kernel; answers nothing where there is no such thing, or no right to it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._family = 0
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
            self._socket.settimeout(1)
            found = dict(self._ask(CONTROL, GET_FAMILY, FAMILY_NAME, b"TASKSTATS\0"))
            self._family = struct.unpack("=H", found[FAMILY_ID])[0]
        except (OSError, KeyError, struct.error):
            self.close()

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, family: int, command: int, kind: int, value: bytes) -> Iterator[tuple[int, bytes]]:
        """The attributes of the answer; OSError when it is an error."""
        if self._socket is None:
            return iter(())
        text = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value.ljust((len(value) + 3) & ~3, b"\0")
        text = _GENERIC_HEADER.pack(command, 1, 0) + text
        self._socket.send(_HEADER.pack(_HEADER.size + len(text), family, 1, 0, 0) + text)
        answer = self._socket.recv(1 << 16)
        if len(answer) < _HEADER.size or _HEADER.unpack_from(answer)[1] == ERROR:
            raise OSError
        return attributes(answer[_HEADER.size + _GENERIC_HEADER.size :])

    def sleeps(self, tgid: int) -> tuple[int, int] | None:
        """Number and ns of the sleeps of a process's threads; None when that is not known."""
        try:
            found = dict(self._ask(self._family, GET, BY_TGID, struct.pack("=I", tgid)))
            return sleeps(dict(attributes(found[OF_TGID]))[STATS])
        except (OSError, KeyError):
            return None

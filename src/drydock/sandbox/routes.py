"""Routes that lead nowhere, put into a sandbox's network from outside.

At link-local addresses clouds serve the credentials of the machine to everybody who asks from it. The sandbox's root
has no right to change routes, so it cannot take these away.
"""

import os
import socket
import struct
import threading
from ipaddress import IPv4Network

from drydock.errors import SandboxError
from drydock.sandbox import kernel

UNREACHABLE = (IPv4Network("169.254.0.0/16"),)

_NEW_ROUTE, _REPLACE = 24, 0x001 | 0x400 | 0x100 | 0x004  # request, create, replace, acknowledge
_MAIN_TABLE, _STATIC, _TYPE_UNREACHABLE, _DESTINATION = 254, 4, 7, 1
_ANSWER_WAIT_S = 5.0


def cut_off(pid: int) -> None:
    """Make `UNREACHABLE` unreachable in the network namespace of `pid`. Blocks for less than a millisecond.

    Raises SandboxError when the kernel refuses.
    """
    failures: list[OSError] = []

    def inside() -> None:
        try:
            namespace = os.pidfd_open(pid)
            try:
                kernel.setns(namespace, kernel.CLONE_NEWNET)
            finally:
                os.close(namespace)
            for network in UNREACHABLE:
                _add_route(network)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=inside, name="sandbox-routes")  # it may not come back, so it is not a pool's
    thread.start()
    thread.join()
    if failures:
        raise SandboxError(f"link-local addresses could not be cut off from a sandbox: {failures[0].strerror}")


def _add_route(network: IPv4Network) -> None:
    route = struct.pack(
        "BBBBBBBBI", socket.AF_INET, network.prefixlen, 0, 0, _MAIN_TABLE, _STATIC, 0, _TYPE_UNREACHABLE, 0
    )
    attribute = struct.pack("HH", 8, _DESTINATION) + network.network_address.packed
    size = 16 + len(route) + len(attribute)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_ANSWER_WAIT_S)
        link.send(struct.pack("IHHII", size, _NEW_ROUTE, _REPLACE, 1, 0) + route + attribute)
        code = -struct.unpack_from("i", link.recv(4096), 16)[0]
    if code:
        raise OSError(code, os.strerror(code))

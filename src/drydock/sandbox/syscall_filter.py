"""A seccomp filter for untrusted commands: what no task needs and kernel exploits like.

User namespaces, mounting, key rings, BPF, performance counters, io_uring, module loading and the like answer EPERM;
`clone3` answers ENOSYS so that the C library falls back to `clone`, whose flags can be looked at. Sockets are made for
local, internet and routing (netlink) addresses only: other families answer EAFNOSUPPORT, above all AF_VSOCK, by which a
virtual machine's host is reached past every network namespace. The filter is a second line: capabilities and the id map
already deny most of this. It is written as classic BPF by hand because neither libseccomp nor its Python binding can be
counted on.
"""

import platform
import struct

# struct seccomp_data: nr at 0, arch at 4, args[0] (low word) at 16
_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NEW_USER_NAMESPACE = 0x10000000
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64)
_DENIED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "fanotify_init": (300, 262),
    "kcmp": (312, 272),
    "lookup_dcookie": (212, 18),
    "pidfd_getfd": (438, 438),
    "vhangup": (153, 58),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
_CLONE = (56, 220)
_UNSHARE = (272, 97)
_CLONE3 = 435
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK"""


def filter_program() -> bytes | None:
    """The filter for this machine's architecture, or None where its system call numbers are not known here."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    column = 0 if machine == "x86_64" else 1
    program = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if machine == "x86_64":
        program += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    program += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for numbers in (_CLONE, _UNSHARE):
        program += [
            (_JUMP_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, 16),
            (_JUMP_SET, 0, 1, _NEW_USER_NAMESPACE),
            (_RETURN, 0, 0, _ERRNO | _EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for numbers in (_SOCKET, _SOCKETPAIR):
        length = len(_FAMILIES)
        program += [(_JUMP_EQUAL, 0, length + 3, numbers[column]), (_LOAD, 0, 0, 16)]
        program += [(_JUMP_EQUAL, length - index, 0, family) for index, family in enumerate(_FAMILIES)]
        program += [(_RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    denied = sorted(numbers[column] for numbers in _DENIED.values())
    for index, number in enumerate(denied):
        program.append((_JUMP_EQUAL, len(denied) - index, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)

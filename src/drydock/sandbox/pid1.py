"""Process 1 of every sandbox: runs the commands that the driver sends over a socket, and reaps what they leave.

Bubblewrap starts it inside the finished namespaces, so whatever it forks is confined as it is itself: capabilities,
limits, system call filter and network are inherited, never set up again per command. It runs on the Python of the
sandbox (3.8 or later), imports nothing but what is compiled into the interpreter (start-up 6 ms), and outlives every
command. The kernel shields process 1 from signals of its own namespace; changing its group once makes it
undumpable, which also keeps "root" inside from tracing it or reaching its socket through /proc.

One SOCK_SEQPACKET message each, fields separated by NUL. From the driver:
  R key user cwd n env*n argv...   run; its descriptors are the write ends of stdout and stderr and, where the
                                   command is too long for an argument, a script that becomes descriptor 3
  K key                            kill what `key` started and still owns
  A                                kill everything in the sandbox but this process
To the driver: `H` ready; `D key status` ended, status as from waitpid (126 when it could not start); `A` all dead.
The end of the socket is the end of the sandbox.
"""

# ruff: noqa: PTH208, SIM105 -- pathlib and contextlib would have to be read and run from disk at every start
import _signal  # pyright: ignore[reportMissingImports]
import _socket
import errno
import grp
import os
import pwd
import select
import sys

CLOSE_ON_EXEC = 0x40000000  # MSG_CMSG_CLOEXEC
OOM_SCORE = b"700"

pid_of: dict[str, int] = {}
key_of: dict[int, str] = {}


def tell(text: str) -> None:
    try:
        control.send(text.encode("utf-8", "replace")[:4096])
    except OSError:
        os._exit(0)


def resolve(user: str) -> tuple[int, int, list[int], str, str]:
    """(uid, gid, groups, home, name) of a name, a number, or `user:group`, from the sandbox's own files."""
    name, _, group = user.partition(":")
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        entry = None
    if entry is None and not name.isdigit():
        raise LookupError(f"unable to find user {name}: no matching entries in passwd file")
    uid, gid, home = (entry.pw_uid, entry.pw_gid, entry.pw_dir) if entry else (int(name), 0, "/")
    groups = os.getgrouplist(entry.pw_name, gid) if entry else [gid]
    if group:
        try:
            gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
        except KeyError:
            raise LookupError(f"unable to find group {group}: no matching entries in group file") from None
        groups = [gid]
    return uid, gid, groups, home, entry.pw_name if entry else name


def become(user: str, cwd: str, env: dict[str, str], argv: list[str], descriptors: list[int]) -> None:
    """Turn this fork into the command; returns only by raising."""
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.setsid()
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(score, OOM_SCORE)
        os.close(score)
    except OSError:
        pass
    home = "/root"
    if user not in ("", "0", "root"):
        uid, gid, groups, home, name = resolve(user)
        for descriptor in descriptors:
            os.fchown(descriptor, uid, gid)
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
        env.setdefault("USER", name)
    env.setdefault("HOME", home)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.set_inheritable(number, True)
    os.chdir(cwd)
    os.execve(argv[0], argv, env)


def run(fields: list[str], descriptors: list[int]) -> None:
    key, user, cwd, count = fields[:4]
    env = dict(item.split("=", 1) for item in fields[4 : 4 + int(count)])
    argv = fields[4 + int(count) :]
    try:
        pid = os.fork()
    except OSError as problem:
        os.write(descriptors[1], f"cannot start another process: {problem.strerror}\n".encode("utf-8", "replace"))
        tell(f"D\0{key}\0{126 << 8}")
        pid = -1
    if pid == 0:
        code = 125
        try:
            become(user, cwd, env, argv, descriptors)
        except LookupError as problem:
            code = 126
            os.write(descriptors[1], f"{problem.args[0]}\n".encode("utf-8", "replace"))
        except OSError as problem:
            code = 127 if problem.errno == errno.ENOENT else 126
            os.write(descriptors[1], f"{problem.filename or argv[0]}: {problem.strerror}\n".encode("utf-8", "replace"))
        finally:
            os._exit(code)
    for descriptor in descriptors:
        os.close(descriptor)
    if pid > 0:
        pid_of[key] = pid
        key_of[pid] = key


def living() -> list[tuple[tuple[int, bytes], int, int]]:
    """((pid, start time), parent, session) of every process but this one that is not a zombie."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
        except OSError:
            continue
        try:
            data = os.read(descriptor, 1024)
        except OSError:
            continue
        finally:
            os.close(descriptor)
        stat = data[data.rindex(b")") + 2 :].split()
        if stat[0] not in (b"Z", b"X"):
            found.append(((int(name), stat[19]), int(stat[1]), int(stat[3])))
    return found


def kill_command(pid: int) -> None:
    """Kill the session of `pid` and the descendants of its processes, until none is left to kill."""
    doomed: set[tuple[int, bytes]] = set()
    for _ in range(200):
        table = living()
        doomed.update(process for process, _, session in table if process[0] == pid or session == pid)
        size = -1
        while size != len(doomed):
            size = len(doomed)
            parents = {process[0] for process in doomed}
            doomed.update(process for process, parent, _ in table if parent in parents)
        targets = [process[0] for process, _, _ in table if process in doomed]
        if not targets:
            break
        for target in targets:
            try:
                os.kill(target, _signal.SIGKILL)
            except OSError:
                pass
    reap()


def kill_all() -> None:
    while True:
        try:
            os.kill(-1, _signal.SIGKILL)
        except OSError:
            pass
        try:
            ended(*os.waitpid(-1, 0))
        except ChildProcessError:
            break
    tell("A")


def ended(pid: int, status: int) -> None:
    key = key_of.pop(pid, None)
    if key is not None:
        del pid_of[key]
        tell(f"D\0{key}\0{status}")


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended(pid, status)


def serve() -> None:
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
    poll = select.poll()
    poll.register(wake_read, select.POLLIN)
    poll.register(control.fileno(), select.POLLIN)
    tell("H")
    while True:
        for ready, _ in poll.poll():
            if ready == wake_read:
                os.read(wake_read, 512)
                reap()
                continue
            data, ancillary, _, _ = control.recvmsg(1 << 18, 256, CLOSE_ON_EXEC)
            if not data:
                return
            packed = b"".join(item[2] for item in ancillary)
            descriptors = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
            verb, *fields = data.decode("utf-8", "surrogateescape").split("\0")
            if verb == "R":
                run(fields, descriptors)
            elif verb == "K" and fields[0] in pid_of:
                kill_command(pid_of[fields[0]])
            elif verb == "A":
                kill_all()


if __name__ == "__main__":
    number = int(sys.argv[1])
    if os.geteuid() == 0:
        os.setegid(1)
        os.setegid(0)
    os.umask(0o022)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != number:
            try:
                os.close(int(name))
            except OSError:
                pass
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, number)
    os.set_inheritable(number, False)
    serve()
    os._exit(0)

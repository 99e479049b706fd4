"""What an attacker would try from inside (as root of the sandbox), and must fail at."""

import asyncio
import os
import platform
import shutil
import socket
import time
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

pytestmark = pytest.mark.sandbox


async def test_host_files_are_not_there(local, tmp_path):
    (tmp_path / "secret").write_text("host secret")
    home = Path.home()
    result = await local.exec(f"cat {tmp_path}/secret; ls -A {home} /root; cat /etc/shadow | grep -c .")
    assert "host secret" not in result.stdout
    assert ".cache" not in result.stdout
    mounts = (await local.exec("cat /proc/self/mountinfo /proc/mounts")).stdout
    assert str(home) not in mounts
    assert str(tmp_path) not in mounts


async def test_system_settings_cannot_be_written(local):
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    result = await local.exec(
        "echo '|/tmp/evil' > /proc/sys/kernel/core_pattern; echo 1 > /proc/sysrq-trigger;"
        "echo 9 > /proc/sys/vm/swappiness;"
        "umount /proc/sys; mount -o remount,rw /proc/sys; mount -t proc none /mnt;"
        "mkdir /x; mount --bind /proc /x; echo '|/tmp/evil' > /x/sys/kernel/core_pattern"
    )
    assert result.return_code != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind /etc /mnt",
        "umount /dev",
        "mknod /tmp/disk b 254 0",
        "mknod /tmp/memory c 1 1",
        "chroot /proc/1/root true",
        "unshare -Ur true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "setpriv --inh-caps +all --ambient-caps +all mount -t tmpfs none /mnt",
        "hostname other",
        "dmesg",
        "date -s 2000-01-01",
        "touch /dev/file",
        "chmod 777 /proc/sys/kernel",
        "kill -9 1 && sleep 0.2 && test ! -e /proc/1/stat",
        "cat /proc/1/environ",
        "ls /proc/1/fd/",
        "python3 -c 'import os; os.open(\"/proc/1/mem\", os.O_RDWR)'",
    ],
)
async def test_refused(local, attempt):
    result = await local.exec(attempt, timeout_sec=10)
    if attempt.startswith("ls /proc/1/fd"):
        assert (await local.exec("readlink /proc/1/fd/0")).return_code != 0
    else:
        assert result.return_code not in (0, 124), result.stdout
    assert (await local.exec("echo alive")).stdout == "alive\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the call numbers below are those of x86_64")
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("272, 0x10000000", "Operation not permitted"),  # unshare(CLONE_NEWUSER)
        ("56, 0x10000011, 0, 0, 0, 0", "Operation not permitted"),  # clone(CLONE_NEWUSER | SIGCHLD)
        ("435, 0, 0", "Function not implemented"),  # clone3
        ("250, 0, 0, 0", "Operation not permitted"),  # keyctl
        ("321, 0, 0, 0", "Operation not permitted"),  # bpf
        ("425, 1, 0", "Operation not permitted"),  # io_uring_setup
        ("0x40000000 | 39", "Function not implemented"),  # getpid of the x32 table
        ("41, 40, 1, 0", "Address family not supported by protocol"),  # socket(AF_VSOCK)
        ("41, 17, 3, 0", "Address family not supported by protocol"),  # socket(AF_PACKET)
        ("41, 38, 5, 0", "Address family not supported by protocol"),  # socket(AF_ALG)
        ("53, 30, 1, 0, 0", "Address family not supported by protocol"),  # socketpair(AF_TIPC)
        ("41, 2, 3, 1", "Operation not permitted"),  # socket(AF_INET, SOCK_RAW, ICMP)
        ("303, -100, 0, 0, 0, 0", "Operation not permitted"),  # name_to_handle_at
        ("304, 0, 0, 0", "Operation not permitted"),  # open_by_handle_at
        ("438, 0, 0, 0", "Operation not permitted"),  # pidfd_getfd
        ("169, 0xfee1dead, 0x28121969, 0x1234567, 0", "Operation not permitted"),  # reboot
    ],
)
async def test_raw_system_calls_are_filtered(local, call, error):
    result = await local.exec(f"perl -e 'exit(syscall({call}) == -1 ? (print \"$!\\n\") && 0 : 1)'")
    assert result.stdout == f"{error}\n"


@pytest.mark.parametrize(
    "attempt",
    [
        "echo changed > /sealed/in/file",
        "touch /sealed/in/new",
        "chmod 777 /sealed/in",
        "rm -rf /sealed",
        "mv /sealed /elsewhere",
        "ln -f /sealed/in/file /alias && echo changed > /alias",
        "mount -o remount,bind,rw /sealed",
        "umount -l /sealed",
        "unshare -m umount /sealed",
        "unshare -rm umount /sealed",
        "mount --bind / /mnt",
    ],
)
async def test_what_is_made_read_only_can_be_changed_by_nobody_inside(local, attempt):
    await local.exec("mkdir -p /sealed/in && echo kept > /sealed/in/file")
    await local.make_read_only("/sealed")
    assert (await local.exec(attempt)).return_code != 0
    await local.kill_processes()
    assert (await local.exec(attempt)).return_code != 0
    await local._local._restart()
    assert (await local.exec(attempt)).return_code != 0
    assert (await local.exec("cat /sealed/in/file; ls /sealed/in")).stdout == "kept\nfile\n"


async def test_process_one_cannot_be_traced(local):
    traced = await local.exec("grep -E '^(TracerPid|Uid)' /proc/1/status; cat /proc/1/syscall; cat /proc/1/stack")
    assert traced.return_code != 0


async def test_processes_of_the_host_are_invisible_and_cannot_be_killed(local):
    victim = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        result = await local.exec(f"kill -9 {victim.pid}; ps -e | wc -l")
        assert int(result.stdout) < 8
        await local.exec("kill -9 -1")
        assert victim.returncode is None
    finally:
        victim.kill()
        await victim.wait()
    assert (await local.exec("echo alive")).stdout == "alive\n"


async def test_servers_on_the_hosts_loopback_and_addresses_are_unreachable(local):
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        port = server.getsockname()[1]
        name = f"drydock-test-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        program = f"""
import socket
for address in ("127.0.0.1", "0.0.0.0", "::1", "{_own_address()}", "1.1.1.1"):
    try:
        socket.create_connection((address, {port}), timeout=2)
        print("reached", address)
    except OSError:
        pass
s = socket.socket(socket.AF_UNIX)
try:
    s.connect("\\0{name}")
    print("reached abstract socket")
except OSError:
    pass
print(sorted(name for _, name in socket.if_nameindex()))
"""
        result = await local.exec(f"python3 - <<'EOF'\n{program}\nEOF", timeout_sec=30)
    assert "reached" not in result.stdout, result.stdout
    assert "['lo'" in result.stdout


@pytest.mark.skipif(shutil.which("slirp4netns") is None, reason="no slirp4netns: apt-get install slirp4netns")
async def test_an_allowed_network_does_not_reach_the_hosts_loopback_and_can_be_cut(start):
    environment = await start(allow_network=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tried = await environment.exec(
            "cut -d: -f1 /proc/net/dev | grep -c tap0; cat /etc/resolv.conf;"
            f"for h in 127.0.0.1 10.0.2.2; do timeout 3 bash -c 'echo > /dev/tcp/$0/{port}' $h && echo reached $h; done"
        )
    assert tried.stdout == "1\nnameserver 10.0.2.3\n"
    began = time.monotonic()
    metadata = await environment.exec("echo > /dev/tcp/169.254.169.254/80", timeout_sec=20)
    assert "No route to host" in metadata.stderr
    assert time.monotonic() - began < 5
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
    assert (await environment.exec("grep -c tap0 /proc/net/dev")).stdout == "0\n"
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.PUBLIC))
    assert (await environment.exec("grep -c tap0 /proc/net/dev")).stdout == "1\n"


async def test_own_loopback_works(local):
    result = await local.exec(
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 8000));'
        'c = socket.create_connection(("127.0.0.1", 8000)); s.accept()[0].send(b"hi"); print(c.recv(2))\''
    )
    assert result.stdout == "b'hi'\n"


async def test_sandboxes_do_not_see_each_other(start):
    one, two = await start(name="one"), await start(name="two")
    await one.exec("echo x > /tmp/mark; (sleep 293 &) >/dev/null 2>&1; python3 -c 'print(1)'")
    result = await two.exec("ls /tmp; pgrep -c -f 'sleep 293'")
    assert result.stdout == "0\n"


BOMB = """
import os, time
for _ in range(10):  # doubles ten times: 1,024 processes at most, which end by themselves
    try:
        os.fork()
    except OSError:
        pass
time.sleep(8)
"""


async def test_fork_bomb_is_bounded_and_the_sandbox_can_be_freed_of_it(start):
    environment = await start(max_processes=400)
    bomb = asyncio.create_task(environment.exec(f"python3 -c '{BOMB}'", timeout_sec=3))
    await asyncio.sleep(1.5)
    assert _processes_of(environment) <= 402
    full = await environment.exec("echo started", timeout_sec=20)
    assert full.return_code in (0, 126, 254), full
    await bomb
    await environment.kill_processes()
    assert (await environment.exec("ps -e --no-headers | wc -l", timeout_sec=20)).stdout.strip() in ("3", "4")
    assert _processes_of(environment) <= 2


async def test_threads_under_other_ids_count_too(start):
    environment = await start(max_processes=400)
    program = (
        "import os, time\n"
        "made = 0\n"
        "for uid in range(1, 40):\n"
        "    for _ in range(30):\n"
        "        try:\n"
        "            pid = os.fork()\n"
        "        except OSError:\n"
        "            break\n"
        "        if pid == 0:\n"
        "            os.setuid(uid)\n"
        "            time.sleep(20)\n"
        "            os._exit(0)\n"
        "        made += 1\n"
        "print(made)\n"
    )
    result = await environment.exec(f"python3 - <<'EOF'\n{program}EOF", timeout_sec=10)
    assert 100 < int(result.stdout or 999) <= 400
    await environment.kill_processes()


async def test_memory_of_a_process_is_bounded(start):
    environment = await start(task={"memory_mb": 256})
    result = await environment.exec("python3 -c 'x = bytearray(512 << 20)'", timeout_sec=20)
    assert "MemoryError" in result.stderr


async def test_writing_is_bounded(start):
    environment = await start(task={"storage_mb": 32})
    single = await environment.exec("head -c 100000000 /dev/zero > /tmp/one", timeout_sec=30)
    assert single.return_code != 0
    several = await environment.exec(
        "rm /tmp/one; for i in $(seq 8); do head -c 8000000 /dev/zero > /tmp/$i || exit 9; done"
    )
    assert several.return_code == 9
    assert "No space left" in several.stderr
    shared = await environment.exec("head -c 100000000 /dev/zero > /dev/shm/x")
    assert shared.return_code != 0


async def test_cpu_time_is_bounded(start):
    environment = await start(max_cpu_s=1)
    began = time.monotonic()
    result = await environment.exec("while :; do :; done", timeout_sec=60)
    assert result.return_code == 128 + 9
    assert time.monotonic() - began < 30


async def test_no_set_user_id_and_no_file_capabilities(local):
    result = await local.exec("cp /bin/bash /tmp/sh; chmod 4755 /tmp/sh")
    assert result.return_code == 0
    assert (await local.exec("/tmp/sh -p -c 'id -u'", user="nobody")).stdout.strip() == "65534"
    assert (await local.exec("cat /proc/self/status | grep NoNewPrivs")).stdout.split()[1] == "1"


def _own_address() -> str:
    """An address of this machine other than loopback, as far as it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return probe.getsockname()[0]


def _processes_of(environment) -> int:
    """Number of processes in a sandbox, counted from the host."""
    space = Path(f"/proc/{environment._running().init_pid}/ns/pid").readlink()
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                count += (entry / "ns" / "pid").readlink() == space
            except OSError:
                continue
    return count

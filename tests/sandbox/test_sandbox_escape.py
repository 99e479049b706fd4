"""Attacks on what a sandbox shares with the machine: kernel, clock, descriptors, other sandboxes, memory, disk.

Each is tried for real and seen to fail. Each is bounded in itself, so that the machine survives where a protection
does not hold.
"""

import asyncio
import os
import platform
import time
from pathlib import Path

import pytest

from drydock.sandbox.control_groups import available

pytestmark = pytest.mark.sandbox

PYTHON = "python3 - <<'EOF'\n{}\nEOF"


NUMBERED = pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls by the numbers of x86_64")


async def perl(environment, program: str, **kwargs):
    """Run a program that makes system calls by number, which the sandbox's small Python cannot."""
    return await environment.exec(f"perl - <<'EOF'\n{program}\nEOF", timeout_sec=20, **kwargs)


async def python(environment, program: str, **kwargs):
    """Run a program in the sandbox's Python, as its root."""
    return await environment.exec(PYTHON.format(program), **{"timeout_sec": 20, **kwargs})


async def test_a_command_inherits_no_descriptor(local):
    result = await local.exec("ls -l /proc/self/fd | awk '{print $9}' | sort | tr '\\n' ' '")
    assert result.stdout.split() == ["0", "1", "2", "3"]  # 3 is the directory that ls reads
    inside = await local.exec("for p in /proc/[0-9]*; do ls -l $p/fd; done 2>/dev/null | grep -cE 'socket|memfd'")
    assert inside.stdout.strip() == "0"


@NUMBERED
async def test_descriptors_of_process_one_cannot_be_taken(local):
    program = """
my $pidfd = syscall(434, 1, 0);  # pidfd_open
print "no pidfd\\n" if $pidfd < 0;
for my $n (0 .. 63) { print "stolen $n\\n" if syscall(438, $pidfd, $n, 0) >= 0 }  # pidfd_getfd
for my $path ("/proc/1/fd/3", "/proc/1/root/proc/1/fd/3", "/proc/1/cwd/etc", "/proc/1/mem") {
  print "opened $path\\n" if open(my $file, "<", $path);
}
print "tried\\n";
"""
    assert (await perl(local, program)).stdout == "tried\n"


@NUMBERED
async def test_a_sibling_cannot_be_traced_read_or_signalled(start):
    victim, attacker = await start(name="victim"), await start(name="attacker")
    await victim.exec("SECRET=hidden sleep 30 >/dev/null 2>&1 &")
    await asyncio.sleep(0.2)
    outside = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and b"SECRET=hidden" in _environment(entry)
    ]
    assert outside
    program = f"""
for my $pid ({", ".join(outside)}) {{
  print "traced\\n" if syscall(101, 16, $pid, 0, 0) == 0;  # ptrace(PTRACE_ATTACH)
  print "read\\n" if open(my $file, "<", "/proc/$pid/environ");
  print "killed\\n" if kill(9, $pid);
}}
print "tried\\n";
"""
    assert (await perl(attacker, program)).stdout == "tried\n"
    assert (await victim.exec("pgrep -c sleep")).stdout == "1\n"


@NUMBERED
async def test_process_one_cannot_be_traced_by_any_user(local):
    for user in ("root", "nobody"):
        program = 'print syscall(101, $_, 1, 0, 0), " $!\\n" for (16, 0x4206);'  # PTRACE_ATTACH, PTRACE_SEIZE
        assert (await perl(local, program, user=user)).stdout == "-1 Operation not permitted\n" * 2


@NUMBERED
async def test_the_clock_cannot_be_set(local):
    # clock_settime and settimeofday to the time that it is, and an adjtimex of no effect: harmless where they succeed
    program = """
my $now = pack("qq", time, 0);
print syscall(227, 0, $now), " $!\\n", syscall(164, $now, 0), " $!\\n";
my $change = pack("I", 0x2000) . ("\\0" x 400);
print syscall(159, $change), " $!\\n";
"""
    result = await perl(local, program)
    assert result.stdout == "-1 Operation not permitted\n" * 3


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vda", "/dev/loop0", "/dev/vsock"),
        *("/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/1/mem"),
        *("/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs", "/run/docker.sock", "/var/run/docker.sock"),
        *("/proc/acpi/wakeup", "/proc/bus/pci/00/00.0", "/proc/irq/default_smp_affinity", "/proc/timer_list"),
    ],
)
async def test_devices_and_files_of_the_kernel_cannot_be_opened_for_writing(local, path):
    result = await python(local, f"import os\nos.close(os.open({path!r}, os.O_RDWR))")
    assert result.return_code == 1, path
    assert "Error" in result.stderr


async def test_memory_and_kernel_of_the_machine_cannot_be_read(local):
    result = await local.exec(
        "for f in /proc/kcore /proc/kmsg /dev/mem /proc/keys /proc/1/environ; do head -c 1 $f 2>/dev/null | wc -c; done"
    )
    assert set(result.stdout.split()) <= {"0", "1"}
    assert result.stdout.split()[:3] == ["0", "0", "0"]
    symbols = await local.exec("awk '{print $1}' /proc/kallsyms | sort -u | head -2")
    assert set(symbols.stdout.split()) <= {"0000000000000000"}


@pytest.mark.parametrize(
    "attempt",
    [
        "unshare -Ur sh -c 'mount -t tmpfs none /mnt'",
        "unshare -Urm true",
        "unshare --pid --fork true",
        "unshare --net true",
        "nsenter --target 1 --all true",
        "nsenter --net=/proc/1/ns/net true",
        "mount -o bind /proc/1/root /mnt",
        "mount -t overlay none -o lowerdir=/etc,upperdir=/tmp,workdir=/var /mnt",
        "mount -o remount,rw /dev",
        "umount /proc",
        "umount -l /",
        "pivot_root / /tmp",
        "swapoff -a && false",
        "mknod /tmp/zero c 1 5",
        "su nobody -s /bin/sh -c 'kill -9 1'",
        "dd if=/dev/zero of=/dev/vda count=1",
        "echo x > /proc/sys/kernel/hostname",
        "echo 3 > /proc/sys/vm/drop_caches",
        "echo 0 > /proc/sys/kernel/pid_max",
        "echo -1000 > /proc/self/oom_score_adj",
        "renice -n -10 $$",
        "chrt -f 50 true",
        "ionice -c 1 true",
        "prlimit --pid $$ --nproc=100000:100000",
        "prlimit --pid $$ --data=unlimited:unlimited",
    ],
)
async def test_rights_cannot_be_gained(local, attempt):
    result = await local.exec(attempt, timeout_sec=10)
    assert result.return_code not in (0, 124, 127), result
    assert (await local.exec("echo alive")).stdout == "alive\n"


async def test_a_program_with_rights_of_its_own_gains_none(local):
    await local.exec("cp /bin/sh /tmp/suid && chown root /tmp/suid && chmod 6755 /tmp/suid")
    gained = await local.exec("/tmp/suid -p -c 'id -u; grep CapEff /proc/self/status'", user="nobody")
    assert gained.stdout.split() == ["65534", "CapEff:", "0000000000000000"]
    assert (await local.exec("setcap cap_sys_admin+ep /bin/cat")).return_code != 0


async def test_nothing_outside_can_be_signalled(local):
    outside = (os.getpid(), -os.getpgid(0))
    program = f"""
import os, signal
for pid in {outside}:
    try:
        os.kill(pid, signal.SIGTERM)
        print("reached", pid)
    except OSError:
        pass
"""
    result = await python(local, program)
    assert (result.return_code, result.stdout) == (0, ""), result


async def test_a_terminal_of_the_driver_cannot_be_typed_into(local):
    program = """
import fcntl
for name in ("/dev/tty", "/dev/console", "/proc/self/fd/0", "/proc/1/fd/0"):
    try:
        with open(name, "rb") as terminal:
            fcntl.ioctl(terminal, 0x5412, b"x")
        print("typed into", name)
    except OSError:
        pass
"""
    assert (await python(local, program)).stdout == ""


async def test_a_key_is_found_nowhere(local, monkeypatch):
    monkeypatch.setenv("DRYDOCK_TEST_KEY", "sk-hunted-0123456789")
    result = await local.exec(
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n';"
        "grep -rIl --exclude-dir=proc --exclude-dir=sys sk-hunted / 2>/dev/null",
        timeout_sec=60,
    )
    assert "sk-hunted-0123456789" not in result.stdout
    assert str(Path.cwd()) not in result.stdout


async def test_memory_of_all_processes_together_is_bounded(start):
    if not available("memory"):
        pytest.skip("no control group for memory can be made here")
    environment = await start(task={"memory_mb": 200, "storage_mb": 16})
    program = """
import os, time
for _ in range(6):  # 600 MB at most, each process below its own bound, for five seconds
    if os.fork() == 0:
        block = bytearray(100 << 20)
        time.sleep(5)
        os._exit(0)
ended = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(6)]
print(sorted(ended).count(-9))
"""
    result = await python(environment, program)
    assert result.return_code == 137 or int(result.stdout) >= 2, result
    alone = await python(environment, "import os\nos.fork()\nblock = bytearray(180 << 20)\nos.wait()", timeout_sec=30)
    if alone.return_code == 137:
        assert "killed: the sandbox used more memory than its" in alone.stderr
    assert (await environment.exec("echo alive")).stdout == "alive\n"


async def test_processors_are_shared_out_as_the_task_asks(start):
    if not available("cpu"):
        pytest.skip("no control group for processors can be made here")
    environment = await start(task={"cpus": 0.25})
    used = await python(
        environment,
        "import time\nbegan = time.monotonic()\nwhile time.monotonic() - began < 2: pass\nprint(time.process_time())",
    )
    assert float(used.stdout) < 0.9
    smaller = await start(name="smaller", max_cpus=0.1, task={"cpus": 2})
    used = await python(
        smaller,
        "import time\nbegan = time.monotonic()\nwhile time.monotonic() - began < 1: pass\nprint(time.process_time())",
    )
    assert float(used.stdout) < 0.4


async def test_a_flood_of_files_on_disk_is_stopped(start):
    environment = await start(storage="disk", task={"storage_mb": 32})
    began = time.monotonic()
    result = await environment.exec(
        # 160 MB at most, each file below its own bound
        "for i in $(seq 16); do head -c 10000000 /dev/zero > /tmp/$i || exit 9; sleep 0.2; done; sleep 20",
        timeout_sec=30,
    )
    assert result.return_code == 137
    assert time.monotonic() - began < 20
    assert (await environment.exec("echo alive")).stdout == "alive\n"


async def test_inodes_are_bounded(start):
    environment = await start(task={"storage_mb": 16})
    made = await python(environment, "for n in range(6000):\n    open(f'/tmp/{n}', 'w').close()")
    assert "No space left" in made.stderr


async def test_a_fork_bomb_beside_others_leaves_them_alone(start):
    bomb, other = await start(name="bomb", max_processes=320), await start(name="other")
    program = """
import os, time
for _ in range(9):  # 512 processes at most, which end by themselves
    try:
        os.fork()
    except OSError:
        pass
time.sleep(5)
"""
    running = asyncio.create_task(python(bomb, program, timeout_sec=10))
    await asyncio.sleep(0.7)
    assert (await other.exec("echo works; for i in 1 2 3; do true & done; wait", timeout_sec=20)).stdout == "works\n"
    await bomb.kill_processes()
    await running
    assert (await bomb.exec("echo free")).stdout == "free\n"


async def test_links_and_pipes_in_log_directories_do_not_reach_the_driver(local, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host secret")
    await local.exec(
        f"ln -s {secret} /logs/agent/a; ln -s /proc/self/environ /logs/agent/b; mkfifo /logs/agent/c;"
        "ln -s /dev/zero /logs/agent/d; ln -s / /logs/agent/e; ln -s ../../../../../../etc/shadow /logs/agent/f;"
        "mkdir /logs/agent/g; ln -s .. /logs/agent/g/h; echo fine > /logs/agent/i"
    )
    await asyncio.wait_for(local.download_dir("/logs/agent", tmp_path / "logs"), 20)
    texts = {path.name: path.read_text() for path in (tmp_path / "logs").rglob("*") if path.is_file()}
    assert texts["i"] == "fine\n"
    assert "host secret" not in "".join(texts.values())
    assert Path("/etc/shadow").read_text() not in texts.values()
    assert not [path for path in (tmp_path / "logs").rglob("*") if path.is_symlink()]


async def test_resource_modes_of_harbor_are_known(local):
    capabilities = type(local).resource_capabilities()
    assert capabilities is not None
    assert capabilities.cpu_limit is available("cpu")
    assert capabilities.memory_limit is available("memory")


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""

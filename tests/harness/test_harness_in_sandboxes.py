"""The agent's tools in real sandboxes."""

import asyncio

import pytest

from drydock.harness.custom_tool import ToolRefused
from drydock.harness.file_editor import FileEditor
from drydock.harness.persistent_shell import PersistentShell
from drydock.harness.sandbox_access import SandboxAccess
from drydock.harness.sandbox_files import MAX_FILE_BYTES, SandboxFiles
from drydock.harness.shell import SandboxShell


async def refused(call) -> str:
    with pytest.raises(ToolRefused) as refusal:
        await call
    return str(refusal.value)


@pytest.mark.parametrize(("kind", "kept"), [(PersistentShell, "1"), (SandboxShell, "")])
async def test_a_persistent_shell_keeps_what_fresh_shells_lose(sandbox: SandboxAccess, kind, kept: str):
    shell = kind(sandbox, rollout_id="r")
    await shell.run("mkdir d && cd d && X=1; sleep 300 >/dev/null 2>&1 &")
    await shell.run("cd d; X=1")
    assert await shell.run('pwd; echo "[$X]"') == (f"/app/d\n[{kept}]", False)


async def test_a_persistent_shell_is_interrupted_replaced_and_killed_with_the_rest(environment, sandbox: SandboxAccess):
    shell = PersistentShell(SandboxAccess(environment, timeout_s=1, max_output_chars=500), rollout_id="r")
    await shell.run("X=kept")
    assert (await shell.run("echo begun; sleep 300"))[0] == "begun\n[stopped: the command ran longer than 1 s]"
    assert (await shell.run("echo $X"))[0] == "kept"
    await environment.kill_processes()
    assert (await shell.run("echo lost"))[0].startswith("[the shell ended: a new shell starts")
    assert (await shell.run("pwd"))[0] == "/app"


async def test_a_file_is_created_viewed_edited_and_taken_back(sandbox: SandboxAccess):
    editor = FileEditor(sandbox)
    assert await editor.create("/app/new/a.py", "def f():\n    return 1\n") == "created /app/new/a.py (2 lines)"
    assert await editor.view("/app/new/a.py") == "     1\tdef f():\n     2\t    return 1"
    assert await editor.view("/app/new/a.py", [2, 2]) == "     2\t    return 1"
    shown = await editor.str_replace("/app/new/../new/a.py", "return 1", "return 'é'")
    assert shown == "edited /app/new/a.py:\n     1\tdef f():\n     2\t    return 'é'"
    await editor.insert("/app/new/a.py", 0, "import os\n")
    assert (await sandbox.run("cat new/a.py")).stdout == "import os\ndef f():\n    return 'é'\n"
    assert await editor.undo_edit("/app/new/a.py") == "took back the last edit of /app/new/a.py"
    await editor.undo_edit("/app/new/a.py")
    assert (await sandbox.run("cat new/a.py")).stdout == "def f():\n    return 1\n"
    assert await editor.undo_edit("/app/new/a.py") == "took back the creation of /app/new/a.py"
    assert (await sandbox.run("ls new")).stdout == ""
    assert await refused(editor.undo_edit("/app/new/a.py")) == "there is no edit of /app/new/a.py to take back"


async def test_an_undo_never_loses_another_change(sandbox: SandboxAccess):
    editor = FileEditor(sandbox)
    await editor.create("/app/a", "1\n")
    await sandbox.run("echo 2 >> a")
    assert "was changed by something else" in await refused(editor.undo_edit("/app/a"))
    assert (await sandbox.run("cat a")).stdout == "1\n2\n"


async def test_what_the_editor_does_not_take_is_said(sandbox: SandboxAccess):
    editor = FileEditor(sandbox)
    await sandbox.run(
        f"head -c 100 /dev/urandom > binary; head -c {MAX_FILE_BYTES + 1} /dev/zero > big; mkfifo pipe; "
        "mkdir -p d/e/f; touch .hidden 'd/a b' d/e/f/deep; ln -s nowhere dangling"
    )
    assert await refused(editor.view("a")) == "the path 'a' is not absolute; begin it with /"
    assert await refused(editor.view("/app/nothing")) == "/app/nothing does not exist"
    assert "is not UTF-8 text" in await refused(editor.view("/app/binary"))
    assert "500001 bytes, too many" in await refused(editor.view("/app/big"))
    assert "is a special file" in await refused(editor.view("/app/pipe"))
    assert "is a directory" in await refused(editor.str_replace("/app/d", "a", "b"))
    assert await editor.create("/app/d/here", "") == "created /app/d/here (0 lines)"
    assert "exists; edit it" in await refused(editor.create("/app/d/here", ""))
    assert await editor.view("/app") == "/app:\nbig\nbinary\nd/\nd/a b\nd/e/\nd/here\npipe"
    assert await editor.view("/app/d/e/f") == "/app/d/e/f:\ndeep"
    assert "without view_range" in await refused(editor.view("/app/d", [1, 2]))
    assert await refused(editor.create("/proc/nothing/a", "x")) != ""


async def test_a_file_keeps_its_mode_and_links_and_all_its_bytes(sandbox: SandboxAccess):
    files = SandboxFiles(sandbox)
    text = "".join(f"line {n} é\t'\"$`\\\r\n" for n in range(12_000)) + "no end"
    assert 200_000 < len(text.encode()) < MAX_FILE_BYTES
    await files.write("/app/a 'b' $c", text)
    await sandbox.run("chmod 750 a*; ln -s \"$PWD/a 'b' \\$c\" link")
    assert await files.read("/app/link") == text
    await files.write("/app/link", text + "x")
    assert (await sandbox.run("stat -c %a a*; readlink link >/dev/null && echo link")).stdout == "750\nlink\n"
    assert await files.read("/app/a 'b' $c") == text + "x"
    assert (await sandbox.run("ls -A /tmp | grep -c edit-")).stdout == "0\n"


async def test_the_editor_may_do_what_the_agents_user_may(environment, sandbox: SandboxAccess):
    await environment.exec("echo secret > /app/secret; chmod 600 /app/secret; chmod 755 /app", user="root")
    if (await sandbox.run("id -u")).stdout.strip() == "0":
        pytest.skip("the agent is root here")
    editor = FileEditor(sandbox)
    assert "Permission denied" in await refused(editor.view("/app/secret"))
    assert "Permission denied" in await refused(editor.create("/etc/new", "x"))


async def test_editors_side_by_side_do_not_disturb_each_other(sandbox: SandboxAccess):
    editors = [FileEditor(sandbox) for _ in range(8)]
    await asyncio.gather(*(editor.create(f"/app/f{n}", f"{n}\n" * 50) for n, editor in enumerate(editors)))
    assert (await sandbox.run("cat f* | sort -u | wc -l")).stdout.strip() == "8"

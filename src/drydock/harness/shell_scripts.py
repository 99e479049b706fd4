"""The bash scripts with which the driver talks to a persistent shell in the sandbox.

A shell has a directory: `in` is the pipe it reads lines from, `ping` the pipe by which it wakes whoever waits for a
command, `pid` its process id (also the id of its session and process group), `exit` its exit code once it has ended.
Command N has `N.cmd`, its output `N.out`, and `N.end` with exit code and working directory once it has ended.

Few programs are started, because each costs more than all the rest.

Pipes are opened for reading and writing (`<>`), because opening a pipe that nobody else has open would wait for ever.
What is written to a pipe that nobody has open is lost, so the shell gets its pipe open.
Job control (`set -m`) is on while the shell is started: without it bash starts background commands, and so all that the
shell runs, with interrupts ignored.
"""

import math
import shlex
from enum import StrEnum
from pathlib import PurePosixPath

NEEDED_PROGRAMS = ("bash", "setsid", "mkfifo")

START_GRACE_S = 5
"""How long a shell may take to start."""

INTERRUPT_GRACE_S = 3
"""How long a command may take to end after it was interrupted."""

MAX_SHOWN_BYTES = 512 * 1024
"""Of an output; the middle of a longer one stays in the sandbox."""


class Ended(StrEnum):
    """How a command ended, as the script reports it."""

    DONE = "done"
    STOPPED = "stopped"
    KILLED = "killed"
    GONE = "gone"


def start_script(home: PurePosixPath, directory: str | None) -> str:
    """Start a shell with its files in `home`, in `directory`; exit code 127 when a needed program is missing."""
    needed = " ".join(NEEDED_PROGRAMS)
    wake = f"echo 1<>{home}/ping"
    first = f"trap 'echo $? >{home}/exit; {wake}' EXIT; echo $$ >{home}/pid; {wake}"
    enter = f"cd -- {shlex.quote(directory)} 2>/dev/null" if directory is not None else ":"
    return f"""\
for program in {needed}; do command -v "$program" >/dev/null || exit 127; done
mkdir -m 700 {home} && mkfifo {home}/in {home}/ping || exit 1
{enter}
exec 8<>{home}/in 9<>{home}/ping
set -m
PS1= PS2= setsid bash --noprofile --norc --noediting -i <&8 8>&- 9>&- >/dev/null 2>&1 &
printf '%s\\n' {shlex.quote(first)} >&8
read -r -t {START_GRACE_S} -u 9 _
[ -s {home}/pid ]
"""


def run_script(home: PurePosixPath, number: int, command: str, *, limit_s: float, marker: str) -> str:
    """Run a command in the shell of `home`, wait for its end, print its output, `marker` and the report."""
    own = f"{home}/{number}"
    end_of_text = f"END-OF-COMMAND-{home.name}"
    wake = f"echo 1<>{home}/ping"
    line = f'eval "$(<{own}.cmd)" </dev/null >{own}.out 2>&1; printf \'%s\\n%s\\n\' "$?" "$PWD" >{own}.end; {wake}'
    after = f"[ -s {own}.end ] || printf '130\\n%s\\n' \"$PWD\" >{own}.end; {wake}"
    return f"""\
exec 9<>{home}/ping
read -r shell <{home}/pid
IFS= read -r -d '' text <<'{end_of_text}'
{command}
{end_of_text}
printf '%s' "$text" >{own}.cmd || exit 1
alive() {{ [ ! -s {home}/exit ] && read -r stat 2>/dev/null </proc/$shell/stat && [[ ${{stat##*) }} != Z* ]]; }}
await() {{
  local until=$((SECONDS + $1))
  while [ ! -s {own}.end ]; do
    alive || {{ ended={Ended.GONE}; return; }}
    [ $SECONDS -lt $until ] || return
    read -r -t 0.5 -u 9 _
  done
  ended=$2
}}
ended=
printf '%s\\n' {shlex.quote(line)} 1<>{home}/in
await {math.ceil(limit_s)} {Ended.DONE}
if [ -z "$ended" ]; then
  kill -INT -- -$shell
  printf '%s\\n' {shlex.quote(after)} 1<>{home}/in
  await {INTERRUPT_GRACE_S} {Ended.STOPPED}
fi
if [ -z "$ended" ]; then
  ended={Ended.KILLED}
  for file in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null <$file || continue
    set -- ${{stat##*) }}
    [ "$4" = "$shell" ] && kill -KILL ${{stat%% *}}
  done
fi
if [ ! -s {own}.out ]; then :
elif [ $(wc -c <{own}.out) -le {MAX_SHOWN_BYTES} ]; then cat {own}.out
else
  head -c {MAX_SHOWN_BYTES // 2} {own}.out; printf '\\n[...]\\n'; tail -c {MAX_SHOWN_BYTES // 2} {own}.out
fi
code= directory=
if [ -s {own}.end ]; then {{ read -r code; IFS= read -r -d '' directory; }} <{own}.end
elif [ -s {home}/exit ]; then read -r code <{home}/exit; fi
printf '%s%s\\n%s\\n%s' {shlex.quote(marker)} "$ended" "$code" "$directory"
case $ended in {Ended.GONE} | {Ended.KILLED}) rm -rf {home} ;; *) rm -f {own}.* >/dev/null 2>&1 & ;; esac
"""

"""The bash scripts by which the driver talks to a program that runs in the background of a sandbox.

A program has a directory that only its user can enter: `in` and `out` are the pipes it reads from and writes to, `err`
and `err.before` hold the latest of what it wrote to standard error, `pid` is the id of the shell that started it (also
of its session and process group), `exit` its exit code once it has ended, `sender` the process group of the latest
sending, `sent` its exit code.

Pipes are opened for reading and writing (`<>`), because opening a pipe that nobody else has open would wait for ever.
What is in a pipe that nobody has open is lost, so the script that starts a program holds its input open.
What a program writes waits in its pipe until a script reads it, so a flood fills no memory.
The output is read as it comes, not by lines: bash reads a pipe byte by byte when it looks for the end of one.
"""

import math
import shlex
from collections.abc import Sequence
from enum import IntEnum
from pathlib import PurePosixPath

NEEDED_PROGRAMS = ("bash", "setsid", "mkfifo", "dd", "base64", "tail")

MAX_READ_BYTES = 8 * 65_536
"""Read in one script, about."""

MAX_ERROR_CHARS = 2_000
"""Shown of standard error."""

_ERROR_BYTES = 4 * MAX_ERROR_CHARS
"""Fetched of it, to be cut when secrets are hidden."""

CLOSE_GRACE_S = 1
"""How long a program may take to end after the end of its input, and again after SIGTERM, before it is killed."""


class Read(IntEnum):
    """Why a script stopped reading, its exit code in there."""

    DATA = 0
    SILENT = 10
    """Nothing came within the time limit."""
    UNTAKEN = 11
    """What was to be sent could not be, the program does not read."""
    UNSENT = 12
    """The sending failed."""
    ENDED = 13
    """The program has ended, and this is the last that it wrote."""


_SUPERVISOR = f"""\
home=$0
echo $$ >$home/pid
keep() {{
  exec 5>&- 6>&-; trap '' TERM
  while IFS= read -r -n {MAX_ERROR_CHARS} line || [ -n "$line" ]; do
    [ ${{#line}} -lt {MAX_ERROR_CHARS} ] && end='\\n' || end=
    printf "%s$end" "$line" >>$home/err
    lines=$((lines + 1)); [ $lines -lt 100 ] || {{ mv -f $home/err $home/err.before; lines=0; }}
  done
}}
exec 5<>$home/in 6<>$home/out
trap 'exec 5>&-' USR1; trap : TERM
keep <$home/errors & keeper=$!
"$@" <$home/in >&6 2>$home/errors 5>&- 6>&- & program=$!
while :; do wait $program; code=$?; [ $code -gt 128 ] && kill -0 $program 2>/dev/null || break; done
for pause in 0.005 0.02 0.1 0.3; do kill -0 $keeper 2>/dev/null || break; sleep $pause; done
echo $code >$home/exit
echo >&6
read -r <>$home/errors
"""
"""Runs a program with its pipes, in a session of its own. SIGUSR1 ends the program's input. The line at the end wakes
whoever reads. It stays when the program has ended, because what is in a pipe that nobody has open is lost."""


def start_script(home: PurePosixPath, command: Sequence[str], prepare: str) -> str:
    """Start a program with its files in `home` after the shell command `prepare`; exits with 127 when a needed program
    is missing, and prints which."""
    return f"""\
for program in {" ".join(NEEDED_PROGRAMS)}; do command -v "$program" >/dev/null || {{ echo $program; exit 127; }}; done
mkdir -p -m 700 {home} && mkfifo {home}/in {home}/out {home}/errors && : >{home}/err || exit 1
{prepare}
exec 4<>{home}/in
set -m
setsid bash -c {shlex.quote(_SUPERVISOR)} {home} {shlex.join(command)} </dev/null >/dev/null 2>&1 4>&- &
set +m
"""


def exchange_script(home: PurePosixPath, send: str, *, limit_s: float) -> str:
    """Do `send` (a shell command) while the program's output is read, until something came and all is sent.

    Prints what was read in base64, then `:`, the reason (`Read`), `:`, the exit code of `send` and of the program, each
    after a `:`, and in the next lines, if the reason is not DATA, the end of standard error in base64.
    """
    return f"""\
home={home}
exec 3<>$home/out
: >$home/sent
set -m
{{ {send}
echo $? >$home/sent
}} </dev/null >/dev/null 2>>$home/err 3>&- & sender=$!
set +m
echo $sender >$home/sender
gone() {{
  [ -s $home/exit ] && return
  read -r pid <$home/pid || return 1
  ! {{ read -r stat <"/proc/$pid/stat" && [[ ${{stat##*) }} != Z* ]]; }}
}} 2>/dev/null
{{
  LC_ALL=C; until=$((SECONDS + {math.ceil(limit_s) + 1})); slice=0.5; parts=0; waits=0; came=; code=
  while [ $parts -lt {MAX_READ_BYTES // 65_536} ] || {{ [ ! -s $home/sent ] && [ $parts -lt 64 ]; }}; do
    if IFS= read -r -N 1 -t $slice -u 3 byte; then
      came=1; slice=0.002; parts=$((parts + 1)); printf %s "$byte"
      read -t 0 -u 3 && dd bs=65536 count=1 <&3
      read -t 0 -u 3 && continue
      [ -s $home/exit ] && ! read -t 0 -u 3 && exit {Read.ENDED}
    elif gone; then ! read -t 0 -u 3 && exit {Read.ENDED}; fi
    read -r code <$home/sent; [ "${{code:-0}}" = 0 ] || exit {Read.UNSENT}
    [ -n "$code" ] && [ -n "$came" ] && exit {Read.DATA}
    [ -z "$came" ] || [ $((waits += 1)) -lt 50 ] || slice=0.05
    [ $SECONDS -lt $until ] || {{ [ -n "$code" ] && exit {Read.SILENT}; exit {Read.UNTAKEN}; }}
  done
  [ -s $home/sent ] || exit {Read.UNTAKEN}
}} 2>/dev/null | base64
reason=${{PIPESTATUS[0]}} code= sent=
read -r sent <$home/sent; [ -n "$sent" ] || kill -KILL -- -$sender
[ ! -s $home/exit ] || read -r code <$home/exit
echo ":$reason:$sent:$code"
[ $reason = 0 ] || cat $home/err.before $home/err 2>/dev/null | tail -c {_ERROR_BYTES} | base64
"""


def heredoc(line: str) -> str:
    """What follows a command so that it reads `line`, the JSON of an object, from its standard input."""
    return f"<<'END-OF-MESSAGE'\n{line}\nEND-OF-MESSAGE"


def stop_script(home: PurePosixPath, grace_s: int) -> str:
    """End the program's input, after `grace_s` seconds the program, after as many kill it, and remove its files."""
    return f"""\
over() {{
  for (( n = 0; n < {20 * grace_s}; n++ )); do
    [ ! -s {home}/exit ] && kill -0 $pid || return 0
    sleep 0.05
  done
  return 1
}} 2>/dev/null
if read -r pid <{home}/pid; then
  kill -USR1 $pid && {{ over || {{ kill -TERM -- -$pid; over; }}; }}
  kill -KILL -- -$pid
  [ -s {home}/sent ] || {{ read -r sender <{home}/sender && kill -KILL -- -$sender; }}
fi 2>/dev/null
rm -rf {home}
"""

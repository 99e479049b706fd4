"""Reading Dockerfiles: what is understood means what Docker means by it, and the rest is refused with its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import TaskError
from drydock.sandbox.base_images import base_directory
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.dockerfile import read_dockerfile
from drydock.sandbox.dockerfile_plan import Copy, MakeDirectory, Plan, Run
from drydock.sandbox.dockerfile_words import word, words
from drydock.sandbox.file_modes import apply_mode, is_mode


def plan_of(tmp_path: Path, text: str) -> Plan:
    file = tmp_path / "Dockerfile"
    file.write_bytes(text.encode())
    return read_dockerfile(file)


def test_a_whole_file(tmp_path):
    plan = plan_of(
        tmp_path,
        """\
# syntax=docker/dockerfile:1
ARG RELEASE=bookworm
FROM debian:${RELEASE}-slim
LABEL who=me
ENV A=1 B="two words" \\
    C=$A-x
ENV OLD style value
WORKDIR /app
WORKDIR inner
COPY --chown=agent:users --chmod=640 a.txt b.txt ./
ADD ["c d.txt", "/x/"]
RUN apt-get update && \\
    # a comment between
    apt-get install -y jq
USER agent
SHELL ["/bin/bash", "-c"]
RUN ["true", "$A"]
RUN echo $C
EXPOSE 80
CMD ["bash"]
""",
    )
    result = plan.result
    assert result.base == "debian:bookworm-slim"
    # an argument from before FROM is not one of the stage; within one ENV, variables have the values from before it
    assert result.env == {"A": "1", "B": "two words", "C": "-x", "OLD": "style value"}
    assert (result.user, result.workdir) == ("agent", "/app/inner")
    env = tuple(result.env.items())
    assert result.steps == (
        MakeDirectory(8, "/app"),
        MakeDirectory(9, "/app/inner"),
        Copy(10, ("a.txt", "b.txt"), "/app/inner/", "agent:users", "640"),
        Copy(11, ("c d.txt",), "/x/", unpack=True),
        Run(12, ("/bin/sh", "-c", "apt-get update &&     apt-get install -y jq"), env, "", "/app/inner"),
        Run(17, ("true", "$A"), env, "agent", "/app/inner"),
        Run(18, ("/bin/bash", "-c", "echo $C"), env, "agent", "/app/inner"),
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A", "a"),
        ("${A}b", "ab"),
        ("${NONE}", ""),
        ("${NONE:-x$A}", "xa"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY-x}", ""),
        ("${A:+set}", "set"),
        ("${NONE:+set}", ""),
        ("\\$A", "$A"),
        ("'$A'", "$A"),
        ('"$A b"', "a b"),
        ("x\\ y", "x y"),
        ("${A:-${B}}", "a"),
        ("${B:-${A}}", "a"),
        ("${PATHS%:*}", "x:y"),
        ("${PATHS%%:*}", "x"),
        ("${PATHS#*:}", "y:z"),
        ("${PATHS##*:}", "z"),
        ("${PATHS/:/-}", "x-y:z"),
        ("${PATHS//:/-}", "x-y-z"),
    ],
)
def test_variables(tmp_path, text, expanded):
    assert plan_of(tmp_path, f'FROM debian\nENV A=a EMPTY="" PATHS=x:y:z\nENV R={text}\n').result.env["R"] == expanded


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ("FROM debian\nCOPY --from=3 /a /b", 2, "no earlier stage 3"),
        ("FROM debian\nCOPY --parents a /b", 2, "--parents"),
        ("FROM debian\nRUN --mount=type=secret,id=x true", 2, "type secret"),
        ("FROM debian\nRUN --mount=target=/x true", 2, "type bind"),
        ("FROM debian\nRUN --network=host true", 2, "--network=host"),
        ("FROM debian\nRUN --security=insecure true", 2, "--security"),
        ("FROM debian\nADD https://example.org/x /x", 2, "address"),
        ("FROM debian\nADD --keep-git-dir=true a /x", 2, "--keep-git-dir"),
        ("FROM debian\nCOPY ../up /x", 2, "outside the build context"),
        ("FROM debian\nCOPY a b /x", 2, "must end with /"),
        ("FROM debian\nCOPY --chmod=rw a /x", 2, "no mode"),
        ("FROM debian\nENV x", 2, "NAME=value"),
        ("FROM debian\nENV A=${B:?must be given}", 2, "B: must be given"),
        ("FROM debian\nENV A='x", 2, "not closed"),
        ("FROM debian\n\nONBUILD RUN true", 3, "ONBUILD"),
        ("FROM debian\nRUN <<EOF\necho hi\n", 2, "no end line"),
        ("FROM debian\n\nRUN", 3, "without a command"),
        ("FROM debian AS\n", 1, "not understood"),
        ("RUN true", 1, "before FROM"),
        ("ARG A=1", 1, "no FROM"),
        ("# escape=x\nFROM debian", 1, "escape"),
        ("FROM debian\n!?", 2, "no instruction"),
    ],
)
def test_refusals_name_file_line_and_reason(tmp_path, lines, line, reason):
    with pytest.raises(TaskError) as caught:
        plan_of(tmp_path, lines)
    assert str(caught.value).startswith(f"{tmp_path}/Dockerfile:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("debian", "built"),
        ("debian:bookworm-slim", "built"),
        ("docker.io/library/debian:12.9", "built"),
        ("debian:stable-slim@sha256:0123", "built"),
        ("debian:trixie", None),
        ("python:3.12-slim", "built"),
        ("ubuntu:24.04", "/roots/noble"),
        ("evil.example/debian:12", None),
    ],
)
def test_base_images(image, found):
    mapping = {"python:3*-slim": "debian", "ubuntu:24*": "/roots/noble"}
    directory = base_directory(image, mapping, Path("built"))
    assert (str(directory) if directory else None) == found


def test_dockerignore_leaves_out_and_takes_back_in(tmp_path):
    for name in ("a.txt", "b.log", "keep.log", "sub/c.log", "sub/d.txt", "node_modules/x/y.js", ".git/config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / ".dockerignore").write_text("# comment\n**/*.log\n!keep.log\nnode_modules\n.git/\n.dockerignore\n")
    context = BuildContext.of(tmp_path)
    found = [inner for inner, entry in context.walk(".") if entry.is_file()]
    assert sorted(found) == ["a.txt", "keep.log", "sub/d.txt"]
    with pytest.raises(TaskError, match=r"b\.log"):
        context.select("b.log", "Dockerfile:3")
    assert context.select("*.txt", "Dockerfile:3") == ["a.txt"]


def test_dockerignore_of_the_dockerfile_goes_first_and_knows_classes(tmp_path):
    for name in ("a1", "a2", "b1", "keep"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("keep\n")
    (tmp_path / "Dockerfile.dockerignore").write_text("./[ab]1\nDockerfile.*\n.dockerignore\n")
    assert [inner for inner, _ in BuildContext.of(tmp_path).walk(".")] == ["a2", "keep"]


def test_a_link_out_of_the_build_context_is_refused(tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (tmp_path / "secret").write_text("host secret")
    (context / "leak").symlink_to("../secret")
    with pytest.raises(TaskError, match=r"Dockerfile:2: leak leads out"):
        BuildContext.of(context).select("leak", "Dockerfile:2")


def test_fingerprint_changes_with_names_contents_and_permissions(tmp_path):
    file = tmp_path / "a" / "file"
    file.parent.mkdir()
    file.write_text("1")
    context = BuildContext.of(tmp_path)
    seen = {context.fingerprint("a")}
    file.write_text("2")
    seen.add(context.fingerprint("a"))
    file.chmod(0o700)
    seen.add(context.fingerprint("a"))
    file.rename(tmp_path / "a" / "other")
    seen.add(context.fingerprint("a"))
    assert len(seen) == 4


def test_here_documents(tmp_path):
    plan = plan_of(
        tmp_path,
        """\
FROM debian
ENV NAME=n
RUN <<EOF
echo $NAME \\
  more
EOF
RUN cat <<-A > /a && cat <<'B' > /b
\tone
\tA
$two
B
RUN <<EOF
#!/usr/bin/python3
print(1)
EOF
COPY <<one.txt <<'two.txt' /d/
a $NAME "quoted" \\$NAME
one.txt
b $NAME
two.txt
RUN echo "<<EOF" $((1<<2)) <<<word
""",
    )
    shell, inner, script, quoted = (step for step in plan.result.steps if isinstance(step, Run))
    assert shell.argv == ("/bin/sh", "-c", "echo $NAME \\\n  more\n")
    assert inner.argv[-1] == "cat <<-A > /a && cat <<'B' > /b\n\tone\n\tA\n$two\nB\n"
    assert script.argv[-1] == "#!/usr/bin/python3\nprint(1)\n"
    assert quoted.argv[-1] == 'echo "<<EOF" $((1<<2)) <<<word'
    copies = [step for step in plan.result.steps if isinstance(step, Copy)]
    assert copies[0].texts == (("one.txt", 'a n "quoted" $NAME\n'), ("two.txt", "b $NAME\n"))
    assert [step.line for step in plan.result.steps] == [3, 7, 12, 16, 21]


def test_stages_arguments_and_what_is_needed(tmp_path):
    plan = plan_of(
        tmp_path,
        """\
ARG BASE=debian
ARG MODE=fast
FROM ${BASE} AS builder
ARG MODE
ARG TARGETARCH
RUN make $MODE
FROM unknown:1 AS unused
FROM scratch AS files
COPY --from=builder /out /out
FROM builder
ARG MODE=slow
USER app
COPY --from=files /out /final
COPY --from=busybox:1 /bin/sh /sh
""",
    )
    assert plan.needed() == [0, 2, 3]
    assert plan.images() == [("debian", 3), ("scratch", 8), ("busybox:1", 14)]
    assert plan.result.base == 0
    assert [step.stage for step in plan.result.steps if isinstance(step, Copy)] == [2, "busybox:1"]
    made = plan.stages[0].steps[0]
    assert isinstance(made, Run)
    assert dict(made.env)["MODE"] == "fast"
    assert dict(made.env)["TARGETARCH"] in ("amd64", "arm64")


def test_a_stage_on_another_has_its_arguments_too(tmp_path):
    plan = plan_of(tmp_path, "FROM debian AS a\nARG X=1\nFROM a\nRUN true\nFROM debian AS other\nFROM a\nRUN true\n")
    run = plan.result.steps[0]
    assert isinstance(run, Run)
    assert run.env == (("X", "1"),)
    assert plan.stages[2].arguments == {}


def test_mounts_that_only_save_time_are_empty_directories(tmp_path):
    flags = "--mount=type=cache,target=/root/.cache --mount=type=tmpfs,target=t --network=none"
    run = plan_of(tmp_path, f"FROM debian\nWORKDIR /w\nRUN {flags} true").result.steps[-1]
    assert isinstance(run, Run)
    assert (run.emptied, run.offline, run.argv[-1]) == (("/root/.cache", "/w/t"), True, "true")


def test_the_escape_directive(tmp_path):
    plan = plan_of(tmp_path, "# escape=`\nFROM debian\nENV A=x`\n  B=c:\\d\nRUN a \\\nRUN b")
    assert plan.result.env == {"A": "x", "B": "c:\\d"}
    assert len(plan.result.steps) == 2


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), max_size=5))
def test_quoted_words_come_back(texts):
    quoted = " ".join("'" + text.replace("'", "'\\''") + "'" for text in texts)
    assert words(quoted, {}) == texts
    assert word(" ".join(f'"{_escaped(text)}"' for text in texts), {}) == " ".join(texts)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30), max_size=8))
def test_here_documents_are_kept_to_the_letter(tmp_path_factory, lines):
    body = [line for line in lines if line != "END"]
    text = "FROM debian\nCOPY <<'END' /x\n" + "".join(f"{line}\n" for line in body) + "END\nUSER last\n"
    result = plan_of(tmp_path_factory.mktemp("d"), text).result
    assert isinstance(copy := result.steps[0], Copy)
    assert copy.texts == (("END", "".join(f"{line}\n" for line in body)),)
    assert result.user == "last"


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("640", 0o755, 0o640),
        ("+x", 0o644, 0o755),
        ("u+x,go-r", 0o644, 0o700),
        ("a=rX", 0o600, 0o444),
        ("g=u", None, None),
        ("", 0o641, 0o641),
    ],
)
def test_modes(text, before, after):
    if before is None:
        assert not is_mode(text)
    else:
        assert apply_mode(text, before, directory=False) == after

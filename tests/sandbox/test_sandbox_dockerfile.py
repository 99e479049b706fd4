"""Reading Dockerfiles: what is understood means what Docker means by it, and the rest is refused with its line."""

from pathlib import Path

import pytest

from drydock.errors import TaskError
from drydock.sandbox.base_images import base_directory
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.dockerfile import Copy, MakeDirectory, Run, read_dockerfile


def plan_of(tmp_path: Path, text: str):
    file = tmp_path / "Dockerfile"
    file.write_text(text)
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
    assert plan.base_image == "debian:bookworm-slim"
    # within one ENV, variables have the values from before it
    assert plan.env == {"A": "1", "B": "two words", "C": "-x", "OLD": "style value"}
    assert (plan.user, plan.workdir) == ("agent", "/app/inner")
    env = (("RELEASE", "bookworm"), *plan.env.items())
    assert plan.steps == (
        MakeDirectory(8, "/app"),
        MakeDirectory(9, "/app/inner"),
        Copy(10, ("a.txt", "b.txt"), "/app/inner/", "agent:users", 0o640),
        Copy(11, ("c d.txt",), "/x/", "", None),
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
    ],
)
def test_variables(tmp_path, text, expanded):
    assert plan_of(tmp_path, f'FROM debian\nENV A=a EMPTY=""\nENV R={text}\n').env["R"] == expanded


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        ("FROM debian\nFROM debian", 2, "several stages"),
        ("FROM debian\nCOPY --from=other /a /b", 2, "--from"),
        ("FROM debian\nRUN --mount=type=cache,target=/x true", 2, "--mount"),
        ("FROM debian\nADD https://example.org/x /x", 2, "address"),
        ("FROM debian\nADD x.tar.gz /x", 2, "archive"),
        ("FROM debian\nCOPY ../up /x", 2, "outside the build context"),
        ("FROM debian\nCOPY a b /x", 2, "must end with /"),
        ("FROM debian\nCOPY --chmod=u+x a /x", 2, "octal"),
        ("FROM debian\nENV x", 2, "NAME=value"),
        ("FROM debian\n\nONBUILD RUN true", 3, "ONBUILD"),
        ("FROM debian\nRUN <<EOF\necho hi\nEOF", 2, "here-documents"),
        ("RUN true", 1, "before FROM"),
        ("# escape=`\nFROM debian", 1, "escape"),
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

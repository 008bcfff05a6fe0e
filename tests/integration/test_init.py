"""patchwright init, completion and man."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchwright.main import _COMMANDS
from projects import Ran, TinyProject, make_wheel


def _git(work: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=work, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _init(folder: Path, *options: str) -> tuple[TinyProject, Ran]:
    project = TinyProject(folder)
    ran = project.run("init", str(folder), *options, cwd=folder.parent)
    return project, ran


def _repository(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    _git(folder, "init", "--quiet", "-b", "main")
    _git(folder, "add", "-A", "-f")
    _git(folder, "commit", "--quiet", "-m", "c")
    _git(folder, "tag", "v1.2")
    return _git(folder, "rev-parse", "HEAD^{tree}")


def test_a_git_repository(tmp_path: Path) -> None:
    tree = _repository(tmp_path / "up.git", {"src/pkg/__init__.py": "", "setup.py": "", "t/x": ""})
    project, ran = _init(tmp_path / "p", "--git", str(tmp_path / "up.git"), "--revision", "v1.2")
    assert ran.code == 0, ran.err
    assert tree in ran.out
    text = (project.root / "pyproject.toml").read_text()
    assert 'version = "1.2"' in text
    assert '"src/pkg/" = "pkg/"' in text
    assert project.run("lock", "--check").code == 0
    assert (project.root / "patches").is_dir()
    assert (project.root / "tests" / "smoke").is_dir()
    assert project.run("status").out == "no patches\n"


def test_a_wheel_file_beside_what_pyproject_says_already(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "w", {"pkg/a.py": "1\n", "one.py": ""}, distribution="a-pkg",
                       version="2.0")  # fmt: skip
    root = tmp_path / "p"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nname = "mine"  # kept')
    project, ran = _init(root, "--wheel", str(wheel), "--arch", "sm_120")
    assert ran.code == 0, ran.err
    text = (root / "pyproject.toml").read_text()
    assert text.startswith('[project]\nname = "mine"  # kept\n\n[tool.patchwright]\n')
    assert 'version = "2.0"' in text
    assert '"one.py" = "one.py"' in text
    assert '"pkg/" = "pkg/"' in text
    assert project.run("lock", "--check").code == 0
    again = project.run("init", "--wheel", str(wheel))
    assert again.code == 2
    assert "this is a project already" in again.err


def test_a_directory_is_kept_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "thing-1.4"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.c").write_bytes(b"int a;\r\n")
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / ".gitignore").write_text("sub\n")
    (source / ".gitattributes").write_text("* text eol=lf\n")
    project, ran = _init(tmp_path / "p", "--directory", str(source), "--name", "thing", "--json")
    assert ran.code == 0, ran.err
    shutil.rmtree(source)
    made = ran.json()
    assert made["version"] == "1.4"
    out = tmp_path / "out"
    assert project.run("apply", "--into", str(out)).code == 0
    assert (out / "thing" / "sub" / "a.c").read_bytes() == b"int a;\r\n"
    assert os.access(out / "thing" / "run", os.X_OK)
    diff = tmp_path / "one.diff"
    diff.write_bytes(b"--- a/sub/a.c\n+++ b/sub/a.c\n@@ -1 +1 @@\n-int a;\r\n+int b;\r\n")
    assert project.run("import", str(diff)).code == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "name one upstream"),
        (("--wheel", "a==1", "--sdist", "a==1"), 2, "name one upstream"),
        (("--wheel", "a>=1"), 2, "names no version"),
        (("--wheel", "a b c"), 2, "neither a file nor NAME==VERSION"),
        (("--git", "https://example.org/x"), 2, "which revision?"),
        (("--git", "ext::sh -c x", "--revision", "v1"), 2, "is not an address"),
        (("--directory", "lost"), 2, "there is no such folder"),
        (("--directory", "."), 2, "would lie in the folder that is its upstream"),
        (("--directory", "nested"), 2, "a git repository lies in the folder"),
        (("--directory", "links"), 3, "the link points out of the tree"),
    ],
)
def test_what_fails_leaves_nothing_behind(
    tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "nested").mkdir()
    _repository(tmp_path / "nested" / "inner", {"a": "1\n"})
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "out").symlink_to("../../../etc/passwd")
    before = sorted(tmp_path.rglob("*"))
    _, ran = _init(tmp_path / "p", *options)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_scripts_name_the_variable(tmp_path: Path, shell: str) -> None:
    ran = TinyProject(tmp_path).run("completion", shell)
    assert ran.code == 0
    assert f"_PATCHWRIGHT_COMPLETE={shell}_complete" in ran.out


def test_completion_completes_commands_and_options() -> None:
    def complete(words: str) -> list[str]:
        env = os.environ | {
            "_PATCHWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "patchwright"], env=env, text=True,
                              capture_output=True, check=False)  # fmt: skip
        return done.stdout.split()

    assert complete("patchwright veri") == ["plain,verify"]
    assert complete("patchwright export --form") == ["plain,--format"]
    assert "plain,mbox" in complete("patchwright export --format m")


def test_the_manual_says_what_help_says(tmp_path: Path) -> None:
    project = TinyProject(tmp_path)
    page = project.run("man").out
    assert page.startswith('.TH PATCHWRIGHT 1 ""')
    for name in _COMMANDS:
        assert f'.SS "patchwright {name} ' in page
    assert '.SS "patchwright cache prune ' in page
    assert "\\-\\-no\\-trailers" in page
    assert "Collect no Reviewed\\-by and the like." in page


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_formats_the_page_without_complaint(tmp_path: Path) -> None:
    page = TinyProject(tmp_path).run("man").out
    done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert 'bash: eval "$(patchwright completion bash)" in ~/.bashrc' in lines

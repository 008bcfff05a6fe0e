"""The series of real Debian source packages, beside quilt, git am and dpkg-source (slow)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bringing import trees
from projects import TinyProject

pytestmark = pytest.mark.slow

# What each brings: looked up in Debian 12's packages. Series longer than 100 patches, CRLF
# in diffs, Latin-1, DEP-3, dpatch, `Index:` lines, no head at all, mails.
PACKAGES = {
    "grub2": "206 patches, Index:, git mails",
    "freeimage": "CRLF, Latin-1, Index:, no heads",
    "recode": "CRLF, Latin-1, DEP-3",
    "cdparanoia": "Latin-1, git mails",
    "bash": "dpatch heads, -p0, Index:, no heads",
    "procmail": "32 patches",
    "screen": "Latin-1, Index:",
    "ncompress": "Index: on every file",
}
_ASKED_FOR = "PATCHWRIGHT_DEBIAN"
_TOOLS = ("apt-get", "dpkg-source", "quilt", "git")


def _run(*command: str, cwd: Path, ok: tuple[int, ...] = (0,), **env: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, check=False,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    assert done.returncode in ok, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return apt-get with this machine's own mirrors asked for source packages."""
    if not os.environ.get(_ASKED_FOR):
        pytest.skip(f"fetches source packages from Debian's mirrors: set {_ASKED_FOR}=1 to run it")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("apt")
    (folder / "sources").mkdir()
    (folder / "lists" / "partial").mkdir(parents=True)
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"^Types:.*", "Types: deb-src", text, flags=re.MULTILINE)
            text = re.sub(r"^deb ", "deb-src ", text, flags=re.MULTILINE)
            (folder / "sources" / path.name).write_text(text, encoding="utf-8")
    command = (
        "apt-get", "-q", "-o", "Acquire::http::Timeout=30", "-o", "Dir::Etc::SourceList=/dev/null",
        "-o", f"Dir::Etc::SourceParts={folder / 'sources'}",
        "-o", f"Dir::State::Lists={folder / 'lists'}",
    )  # fmt: skip
    done = subprocess.run([*command, "update"], capture_output=True, text=True, check=False)
    if done.returncode or not list((folder / "lists").glob("*Sources*")):
        pytest.skip(f"no index of Debian's source packages: {done.stderr.strip()}")
    return command


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest, apt: tuple[str, ...], tmp_path: Path) -> Path:
    """Return the unpacked source of a package, patches not applied."""
    name = str(request.param)
    done = subprocess.run([*apt, "source", "--download-only", name], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    found = list(tmp_path.glob("*.dsc"))
    if done.returncode or not found:
        pytest.skip(f"apt-get cannot fetch the source of {name}: {done.stderr.strip()}")
    source = tmp_path / "source"
    _run("dpkg-source", "--no-check", "--skip-patches", "-x", found[0].name, "source", cwd=tmp_path)
    return source


def _quilt_trees(source: Path, work: Path) -> list[str]:
    """Return git's id of the tree after each patch, made by quilt in a copy of the source."""
    shutil.copytree(source, work, symlinks=True, ignore=shutil.ignore_patterns(".pc"))
    shutil.rmtree(work / "debian")
    _run("git", "init", "--quiet", "-b", "main", cwd=work)
    patches = source / "debian" / "patches"
    found = []
    while True:
        _run("git", "add", "-A", "-f", "--", ".", ":!.pc", cwd=work)
        found.append(_run("git", "write-tree", cwd=work).strip())
        done = subprocess.run(
            ["quilt", "push", "-q", "--fuzz=0"], cwd=work, capture_output=True, text=True,
            env=os.environ | {"QUILT_PATCHES": str(patches)}, check=False,
        )  # fmt: skip
        if done.returncode:
            assert "fully applied" in done.stdout + done.stderr, done.stdout + done.stderr
            return found


def _project(package: Path, folder: Path) -> TinyProject:
    """Return a project whose upstream is the package without its packaging."""

    def packaging(at: str, _: list[str]) -> list[str]:
        return ["debian", ".pc"] if at == str(package) else []

    shutil.copytree(package, folder / "pristine", symlinks=True, ignore=packaging)
    project = TinyProject(folder / "project")
    ran = project.run(
        "init", str(project.root), "--directory", str(folder / "pristine"), "--name", "up",
        cwd=folder,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    return project


def test_a_package_comes_in_as_quilt_has_it_and_goes_out_as_it_was(
    package: Path, tmp_path: Path
) -> None:
    base, *expected = _quilt_trees(package, tmp_path / "work")
    assert expected
    project = _project(package, tmp_path)
    patches = package / "debian" / "patches"
    ran = project.run("import", str(patches))
    assert ran.code == 0, ran.out + ran.err
    # The tree after every patch, and that of none.
    assert trees(project) == expected
    assert project.run("status", "--json", "--to", "0").json()["base"] == {"up": base}
    assert project.run("lock", "--check").code == 0
    # The same bytes, the series file included.
    out = tmp_path / "quilt"
    assert project.run("export", "-f", "quilt", str(out)).code == 0
    for path in out.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (patches / path.relative_to(out)).read_bytes()
    assert (out / "series").is_file()
    # What the project itself writes of each: git am takes it to the same trees.
    assert project.run("export", "-f", "mbox", str(tmp_path / "box")).code == 0
    clone = tmp_path / "clone"
    _run("git", "init", "--quiet", "-b", "main", str(clone), cwd=tmp_path)
    _run("git", "fetch", "--quiet", str(project.root / "upstreams" / "up.git"), "main", cwd=clone)
    _run("git", "reset", "--quiet", "--hard", "FETCH_HEAD", cwd=clone)
    _run("git", "am", "--quiet", "--keep-cr", str(tmp_path / "box"), cwd=clone)
    found = _run("git", "log", "--format=%T", "--reverse", cwd=clone).split()
    assert found == [base, *expected]


def test_dpkg_source_takes_the_series_that_the_project_writes(
    package: Path, tmp_path: Path
) -> None:
    """Every patch written anew (its title changed), applied with dpkg-source's strictness."""
    expected = _quilt_trees(package, tmp_path / "work")[-1]
    project = _project(package, tmp_path)
    assert project.run("import", str(package / "debian" / "patches")).code == 0
    for path in (project.root / "patches").glob("*.patch"):
        path.write_bytes(path.read_bytes().replace(b"\nSubject: [PATCH] ", b"\nSubject: [PATCH] x ",
                                                   1))  # fmt: skip
    shutil.rmtree(package / "debian" / "patches")
    ran = project.run("export", "-f", "quilt", str(package / "debian" / "patches"), "--json")
    assert ran.code == 0, ran.err
    assert not any(file["original"] for file in ran.json()["files"])
    _run("dpkg-source", "--before-build", ".", cwd=package)
    shutil.rmtree(package / "debian")
    _run("git", "init", "--quiet", "-b", "main", cwd=package)
    _run("git", "add", "-A", "-f", "--", ".", ":!.pc", cwd=package)
    assert _run("git", "write-tree", cwd=package).strip() == expected

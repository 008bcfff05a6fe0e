"""[tool.patchwright]: what is read, and how wrong input is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.config import LayoutRule, find_root, load_config
from patchwright.errors import InputError

UPSTREAM = """
[tool.patchwright.upstreams.tiny]
source = "wheel"
distribution = "Tiny_Dist"
version = "1.0"
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_a_full_section(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
[tool.patchwright]
arch = ["sm_120", "sm_121a"]
smoke-deadline = 60
[tool.patchwright.upstreams.tiny]
source = "git"
git = "https://example.org/tiny"
revision = "v1.0"
version = "1.0.0"
packages = ["tiny", "tiny_ops"]
outside = ["tiny/_build.py"]
[tool.patchwright.upstreams.tiny.layout]
"src/tiny/" = "tiny/"
"csrc/" = "tiny/data/csrc/"
"setup.py" = "setup.py"
[tool.patchwright.environment]
python = "3.11"
[tool.patchwright.startup]
anything = { goes = true }
""",
    )
    config = load_config(tmp_path)
    tiny = config.upstreams["tiny"]
    assert config.arch == ("sm_120", "sm_121a")
    assert config.smoke_deadline == 60.0
    assert (tiny.source, tiny.git, tiny.revision) == ("git", "https://example.org/tiny", "v1.0")
    assert tiny.packages == ("tiny", "tiny_ops")
    assert tiny.layout.outside == ("tiny/_build.py",)
    assert LayoutRule(b"csrc/", b"tiny/data/csrc/") in tiny.layout.rules
    assert config.environment == {"python": "3.11"}
    assert config.startup == {"anything": {"goes": True}}


def test_the_short_form_has_the_obvious_defaults(tmp_path: Path) -> None:
    write(tmp_path, UPSTREAM)
    tiny = load_config(tmp_path).upstreams["tiny"]
    assert tiny.distribution == "tiny-dist"  # the form that every index uses
    assert tiny.packages == ("tiny",)
    assert tiny.layout.rules == (LayoutRule(b"tiny/", b"tiny/"),)


def test_this_repository_pins_its_two_upstreams() -> None:
    config = load_config(find_root(Path(__file__).parent))
    pins = {u.name: (u.distribution, u.version) for u in config.upstreams.values()}
    assert pins == {"flashinfer": ("flashinfer-python", "0.6.3"), "sglang": ("sglang", "0.5.9")}


def test_the_nearest_folder_upward_with_the_section_is_the_root(tmp_path: Path) -> None:
    write(tmp_path, "[tool.patchwright]\n")
    deep = write(tmp_path / "a", "[tool.other]\n") / "b" / "c"
    deep.mkdir(parents=True)
    assert find_root(deep) == tmp_path


def test_no_project_is_said_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no pyproject\.toml") as caught:
        find_root(tmp_path)
    assert "-C DIR" in caught.value.next_step


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[tool.patchwright]\narch = [\n\n", "line 4|end of document"),
        (b"[tool.patchwright]\nname = '\xff'\n", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        find_root(tmp_path)
    assert caught.value.where == str(tmp_path / "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('[tool.patchwright]\narchs = ["sm_120"]', "archs", "did you mean arch?"),
        ("[tool]\npatchwright = 3", "tool.patchwright", "not a table"),
        ('[tool.patchwright]\narch = "sm_120"', "arch", "list of texts"),
        ('[tool.patchwright]\narch = ["12.0"]', "arch", "not an architecture"),
        ("[tool.patchwright]\nsmoke-deadline = 0", "smoke-deadline", "seconds"),
        ("[tool.patchwright]\nsmoke-deadline = true", "smoke-deadline", "seconds"),
        ('[tool.patchwright]\nupstreams = "tiny"', "upstreams", "table"),
        (UPSTREAM + 'revison = "x"', "tiny.revison", "did you mean revision?"),
        (UPSTREAM + "packages = [1]", "tiny.packages", "list of texts"),
        (UPSTREAM + 'packages = ["a-b"]', "tiny.packages", "import name"),
        (UPSTREAM + "path = 3", "tiny.path", "text is expected, not a number"),
        (UPSTREAM + 'revision = "--upload-pack=x"', "tiny.revision", "not a git revision"),
        (UPSTREAM + 'git = "--upload-pack=x"', "tiny.git", "not an address"),
        (UPSTREAM + 'git = "ext::sh -c true"', "tiny.git", "not an address"),
        (UPSTREAM + 'outside = ["../x"]', "tiny.outside", "leaves the distribution"),
        (UPSTREAM + "layout = {}", "tiny.layout", "needs a rule"),
        (UPSTREAM + 'layout = { "a/" = 1 }', 'layout."a/"', "text is expected"),
        (UPSTREAM + 'layout = { "a/" = "b" }', 'layout."a/"', "the other a file"),
        (UPSTREAM + 'layout = { "a/../" = "b/" }', "layout", "not a prefix"),
        (UPSTREAM + 'layout = { "/a/" = "b/" }', "layout", "not a prefix"),
        (UPSTREAM + 'layout = { "a/" = "x/", "b/" = "x/" }', 'layout."b/"', "as well"),
        (UPSTREAM.replace('"wheel"', '"egg"'), "tiny.source", "wheel, sdist, git"),
        (UPSTREAM.replace('"wheel"', '"git"'), "tiny.git", "address"),
        (UPSTREAM.replace('"1.0"', '"latest"'), "tiny.version", "PEP 440"),
        (UPSTREAM.replace('version = "1.0"', ""), "tiny.version", "missing"),
        (UPSTREAM.replace('distribution = "Tiny_Dist"', ""), "distribution", "add distribution"),
        (UPSTREAM.replace("tiny]", '"ti/ny"]'), "ti/ny", "name"),
        (UPSTREAM + UPSTREAM.replace("tiny]", "Tiny]"), "Tiny", "same name"),
        (
            UPSTREAM + UPSTREAM.replace("tiny]", "other]") + 'packages = ["tiny"]',
            "other",
            "same package",
        ),
    ],
)
def test_wrong_input_is_refused_with_its_key(
    tmp_path: Path, text: str, key: str, said: str
) -> None:
    write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_config(tmp_path)
    assert key in caught.value.what
    assert said in f"{caught.value.what}: {caught.value.next_step}"
    assert caught.value.next_step

"""How an upstream takes changes: what is known, what pyproject.toml says."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.config import load_config
from patchwright.errors import InputError
from patchwright.upstreaming.profiles import Profile, profile_of


def profile(folder: Path, upstream: str, contribute: str = "") -> Profile:
    text = f'[tool.patchwright.upstreams.tiny]\nversion = "1.0"\n{upstream}\n'
    if contribute:
        text += f"[tool.patchwright.upstreams.tiny.contribute]\n{contribute}\n"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return profile_of(load_config(folder).upstreams["tiny"])


WHEEL = 'source = "wheel"\ndistribution = "tiny"\n'


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/flashinfer-ai/flashinfer",
        "https://github.com/flashinfer-ai/flashinfer.git/",
        "git@github.com:flashinfer-ai/flashinfer.git",
        "ssh://git@github.com/flashinfer-ai/flashinfer",
    ],
)
def test_a_known_project_is_recognised_by_its_address(tmp_path: Path, address: str) -> None:
    found = profile(tmp_path, f'{WHEEL}git = "{address}"')
    assert (found.name, found.title, found.branch) == ("flashinfer", "conventional", "main")
    assert "@flashinfer-bot run" in found.ci
    assert found.templates == (".github/pull_request_template.md",)
    assert not found.sign_off


def test_a_local_clone_names_its_profile(tmp_path: Path) -> None:
    found = profile(tmp_path, f'{WHEEL}git = "/some/where/sglang"', 'profile = "sglang"')
    assert (found.repository, found.title) == ("sgl-project/sglang", "plain")


def test_another_project_needs_a_small_table(tmp_path: Path) -> None:
    found = profile(
        tmp_path, f'{WHEEL}git = "https://example.org/them/tiny"',
        'branch = "develop"\ntitle = "conventional"\nsign-off = true\nchecks = []',
    )  # fmt: skip
    assert found == Profile(
        repository="them/tiny", branch="develop", title="conventional", sign_off=True, checks=()
    )


def test_a_table_overrides_a_known_profile(tmp_path: Path) -> None:
    found = profile(tmp_path, WHEEL, 'profile = "flashinfer"\nbranch = "release"')
    assert (found.branch, found.title) == ("release", "conventional")


def test_the_pins_of_this_repository_have_profiles() -> None:
    config = load_config(Path(__file__).resolve().parents[2])
    assert {name: profile_of(u).name for name, u in config.upstreams.items()} == {
        "flashinfer": "flashinfer", "sglang": "sglang",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("contribute", "told"),
    [
        ('profile = "vllm"', "there is no profile 'vllm'"),
        ('branch = "--upload-pack=x"', "contribute.branch: '--upload-pack=x' is not a git"),
        ('title = "shouting"', "contribute.title: 'shouting' is not a style"),
        ('sign-off = "yes"', "contribute.sign-off: true or false is expected, not text"),
        ('repository = "tiny"', "contribute.repository: 'tiny' is not owner/name"),
        ('templates = ["../x"]', "contribute.templates: '../x' leaves the repository"),
        ('brunch = "main"', "contribute.brunch: this key is not known"),
    ],
)
def test_wrong_input_is_refused_with_its_key(tmp_path: Path, contribute: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        profile(tmp_path, WHEEL, contribute)
    assert told in caught.value.what

"""JIT modules of the real flashinfer: compiled ahead, reused by content, never stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwright.environment.toolkit import toolkit
from patchwright.smoke.outcomes import Blocked
from real_flashinfer import COMM, FLAG, GENERATOR, Scene, make_scene

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    try:
        kit = toolkit(tmp_path.resolve() / "kit")
    except Blocked as blocked:
        pytest.skip(str(blocked))
    return make_scene(tmp_path.resolve(), monkeypatch, kit)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """What a compilation changes: times and inodes of all files but locks and logs."""
    return {
        p.name: (p.stat().st_mtime_ns, p.stat().st_ino)
        for p in folder.iterdir()
        if p.suffix in (".o", ".so") or p.name == "build.ninja"
    }


def modules(scene: Scene, *args: str) -> dict[str, tuple[str, int, int]]:
    ran = scene.run("prebuild", "--env", str(scene.env.root), "--json", *args)
    assert ran.code == 0, ran.err
    return {m["name"]: (m["outcome"], m["compiled"], m["reused"]) for m in ran.json()["modules"]}


def test_a_compile_flag_takes_effect_with_the_product_and_not_without(scene: Scene) -> None:
    at = ("--env", str(scene.env.root))
    # Without: somebody edits the installed file, the workspace is warm.
    assert modules(scene, "vllm_comm") == {"vllm_comm": ("compiled", 1, 0)}
    folder = scene.start()
    warm = state(folder)
    pristine = scene.edit(COMM, GENERATOR, FLAG)
    assert scene.start() == folder
    assert "-DPATCHED=1" not in (folder / "build.ninja").read_text()
    assert state(folder) == warm
    ran = scene.run("check", *at, "--json")
    kinds = {(d["kind"], Path(d["where"]).name) for d in ran.json()["differences"]}
    assert ("file", "comm.py") in kinds
    # With: the same as a patch.
    (scene.env.site / COMM).unlink()
    scene.env.install_online("--no-deps", "--reinstall", "flashinfer-python==0.6.3")
    assert (scene.env.site / COMM).read_text() == pristine
    scene.add_patch(1, COMM, GENERATOR, FLAG)
    assert scene.run("apply", *at).code == 0
    patched = scene.start()
    assert patched != folder
    assert "-DPATCHED=1" in (patched / "build.ninja").read_text()
    assert state(folder) == warm
    assert scene.run("check", *at).code == 0
    # And ahead of the start: the object with the flag is made once.
    assert modules(scene) == {"vllm_comm": ("compiled", 1, 0)}
    built = state(patched)
    scene.start()
    assert state(patched) == built
    assert scene.run("check", *at).code == 0


def test_a_python_patch_recompiles_nothing_and_a_source_only_what_it_touches(
    scene: Scene,
) -> None:
    at = ("--env", str(scene.env.root))
    assert modules(scene, "vllm_comm") == {"vllm_comm": ("compiled", 1, 0)}
    assert modules(scene, "vllm_comm") == {"vllm_comm": ("ready", 0, 0)}
    scene.add_patch(1, "flashinfer/comm/vllm_ar.py", "import", "import  # patched\nimport")
    scene.add_patch(
        1, "flashinfer/activation.py", "from types import", "import os\nfrom types import"
    )
    assert scene.run("apply", *at).code == 0
    assert modules(scene) == {"vllm_comm": ("reused", 0, 1)}  # it was made before
    folder = scene.start()
    assert folder.parent.parent.parent.name.startswith("0.6.3+pw.")
    built = state(folder)
    scene.start()
    assert state(folder) == built
    assert scene.run("check", *at).code == 0
    # An object that was made from other sources is told, and not used.
    header = "flashinfer/data/csrc/vllm_custom_all_reduce.cu"
    scene.edit(header, "#include", "// by hand\n#include")
    ran = scene.run("check", *at, "--json")
    assert {d["kind"] for d in ran.json()["differences"]} == {"file", "jit"}
    assert modules(scene, "vllm_comm") == {"vllm_comm": ("compiled", 1, 0)}


def test_a_source_that_does_not_compile_is_said_and_nothing_is_kept(scene: Scene) -> None:
    at = ("--env", str(scene.env.root))
    source = "flashinfer/data/csrc/vllm_custom_all_reduce.cu"
    before = scene.edit(source, "#include", "#error broken by a test\n#include")
    ran = scene.run("prebuild", *at, "vllm_comm", "--json")
    assert ran.code == 1
    [built] = ran.json()["modules"]
    assert built["outcome"] == "failed"
    assert "broken by a test" in built["why"]
    assert "prebuild.log" in ran.err
    assert not list(Path(built["folder"]).glob("*.so"))
    (scene.env.site / source).write_text(before)
    assert modules(scene, "vllm_comm") == {"vllm_comm": ("compiled", 1, 0)}


def test_what_is_refused_is_said(scene: Scene) -> None:
    at = ("--env", str(scene.env.root))
    ran = scene.run("prebuild", *at, "trtllm_comm", "--arch", "sm_120")
    assert ran.code == 1
    assert "No supported CUDA architectures found for major versions [9, 10]" in ran.err
    ran = scene.run("prebuild", *at, "no_such_module")
    assert ran.code == 2
    assert "no JIT module is named no_such_module" in ran.err
    ran = scene.run("prebuild", *at, "vllm_comm", "--arch", "twelve")
    assert ran.code == 2

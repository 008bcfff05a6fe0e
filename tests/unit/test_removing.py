"""The folders of runs go by another name at once, and altogether before their remover does."""

from __future__ import annotations

import os
from pathlib import Path

from patchwright.smoke.removing import Remover


def filled(folder: Path) -> Path:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    return folder


def test_a_folder_is_gone_by_its_name_and_then_altogether(tmp_path: Path) -> None:
    remover = Remover()
    for _ in range(3):
        folder = filled(tmp_path / "run")
        remover.remove(folder)
        assert not folder.exists()
    remover.close()
    assert os.waitpid(remover.pid, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_no_reason_to_keep_it(tmp_path: Path) -> None:
    filled(tmp_path / "run.1.old")
    remover = Remover()
    remover.remove(filled(tmp_path / "run"))
    remover.remove(tmp_path / "run")  # there is none
    remover.close()
    os.waitpid(remover.pid, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["run.1.old"]

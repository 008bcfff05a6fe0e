"""Devices: facts from a STUB driver, the choice among them, and sharing them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patchwright.config import Config
from patchwright.smoke import devices, driver
from patchwright.smoke.devices import LEASED, Device, Lease, Machine, chosen, probe, take
from patchwright.smoke.outcomes import Blocked
from patchwright.tiers import Needs, is_target
from stub_machine import StubMachine

BLACKWELL = "12 0 NVIDIA RTX PRO 6000"
HOPPER = "9 0 NVIDIA H200"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubMachine:
    return StubMachine(tmp_path, monkeypatch)


def needs(stub: StubMachine) -> Needs:
    return Needs(Config(stub.folder, {}, arch=("sm_120", "sm_121")))


def device(number: int, name: str = "A", capability: tuple[int, int] = (12, 0)) -> Device:
    return Device(str(number), f"uuid-{number}", name, capability, 1 << 30, None)


def test_the_driver_says_what_there_is(stub: StubMachine) -> None:
    stub.devices(BLACKWELL, HOPPER)
    machine = probe(os.environ)
    assert machine.cuda == "13.0"
    first, second = machine.devices
    assert (first.name, first.architecture, first.capability) == (
        "NVIDIA RTX PRO 6000", "sm_120", (12, 0),
    )  # fmt: skip
    assert first.memory_total == 96 << 30
    assert second.architecture == "sm_90"
    assert first.uuid != second.uuid
    assert Machine.from_json(machine.to_json()) == machine


def test_a_driver_that_refuses_is_quoted(stub: StubMachine) -> None:
    stub.driver("13000", init=803)
    with pytest.raises(Blocked, match=r"cuInit answers 803 \(stub error\)"):
        probe(os.environ)
    stub.driver("13000", init=100)
    assert probe(os.environ).devices == ()


def test_without_a_driver_library_the_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "__file__", "/nonexistent.py")
    with pytest.raises(Blocked, match="needs a CUDA driver that answers"):
        probe(os.environ)


def test_the_users_choice_of_devices_keeps_its_names(
    stub: StubMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.devices(BLACKWELL, BLACKWELL)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert [d.visible for d in probe(os.environ).devices] == ["5", "3"]


def test_nodes_are_counted_and_control_nodes_are_not(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert devices.count_nodes(tmp_path) == 2


def test_targets_are_chosen_before_others_and_are_of_one_kind() -> None:
    blackwell = (device(1, "B"), device(2, "B"))
    machine = Machine("1", "13.0", (device(0, "H", (9, 0)), *blackwell, device(3, "C")))
    assert chosen(machine, ("sm_120",)).devices == blackwell
    assert chosen(machine, ("sm_90a",)).devices == machine.devices[:1]
    # None is a target: the patches are shown to leave the others alone.
    assert chosen(machine, ("sm_75",)).devices == blackwell
    assert is_target("sm_120", ("sm_120a",))
    assert not is_target("sm_120", ("sm_121", "sm_12"))


def test_a_device_is_lent_once_and_all_or_nothing(tmp_path: Path) -> None:
    group = Machine("1", "13.0", (device(0), device(1)))
    first = take(group, 1, tmp_path)
    assert first is not None
    assert take(group, 2, tmp_path) is None
    second = take(group, 1, tmp_path)  # the pair above holds none of them
    assert second is not None
    assert {d.uuid for lease in (first, second) for d in lease.machine.devices} == {
        "uuid-0", "uuid-1",
    }  # fmt: skip
    assert take(group, 1, tmp_path) is None
    first.close()
    assert take(group, 1, tmp_path) is not None


def test_a_lease_says_what_a_run_sees() -> None:
    lease = Lease(Machine("580.65.06", "13.0", (device(4), device(7))))
    assert lease.environment["CUDA_VISIBLE_DEVICES"] == "4,7"
    assert devices.leased(lease.environment) == lease.machine
    assert lease.facts == {"device": "2 x A, sm_120", "driver": "580.65.06", "cuda": "13.0"}
    assert Lease().environment == {}
    with pytest.raises(Blocked, match="needs a device"):
        devices.leased({LEASED + "x": ""})


def test_no_device_is_a_need_and_nothing_is_started_for_it(
    stub: StubMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "probe", lambda outer: pytest.fail("the driver was asked"))
    assert needs(stub).missing("gpu") == "needs one sm_120 or sm_121 device; found none"
    assert needs(stub).missing("multi-gpu") == "needs 2 sm_120 or sm_121 devices; found none"


def test_one_device_is_not_enough_for_ranks(stub: StubMachine) -> None:
    stub.devices(BLACKWELL)
    assert needs(stub).missing("gpu") == ""
    assert needs(stub).missing("multi-gpu") == (
        "needs 2 sm_120 or sm_121 devices; found 1 (NVIDIA RTX PRO 6000)"
    )


def test_what_decides_an_outcome_on_a_device_is_in_its_key(stub: StubMachine) -> None:
    stub.devices(HOPPER)
    key = needs(stub).key("gpu")
    assert (key["device"], key["device-name"], key["cuda"]) == ("sm_90", "NVIDIA H200", "13.0")
    assert {"driver", "compiler", "environment"} <= key.keys()
    stub.devices(HOPPER, HOPPER)
    assert needs(stub).key("gpu") == key
    assert needs(stub).key("multi-gpu") == key | {"devices": "2"}
    assert set(needs(stub).key("import")) == {"environment"}
    assert needs(stub).key("static") == {}


def test_a_driver_that_is_too_old_for_torch_is_a_need(stub: StubMachine) -> None:
    stub.devices(BLACKWELL)
    stub.driver("11080")
    need = needs(stub).missing("gpu")
    assert need.startswith("needs a driver for CUDA 12.8, which torch of ")
    assert need.endswith("this one serves 11.8")
    stub.driver("12020")  # the same major version will do
    assert needs(stub).missing("gpu") == ""


def test_a_device_that_is_gone_is_named(stub: StubMachine) -> None:
    stub.devices(BLACKWELL, BLACKWELL)
    given = probe(os.environ)
    assert devices.vanished(given, os.environ) == ""
    stub.devices(BLACKWELL)
    assert "NVIDIA RTX PRO 6000 00000000-0000-0000-0000-000000000002 is gone" in (
        devices.vanished(given, os.environ)
    )

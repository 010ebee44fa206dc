"""Which medium joins how many devices, and what it does."""

from dataclasses import replace

import pytest

from roofcast.hardware import links
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import FileFormatError, UnknownSpecError
from roofcast.hardware.spec_file import read_user

SPEC = """\
id = "mine"
name = "Mine"
vendor = "Me"
kind = "gpu"
[pcie]
generation = 4
lanes = 16
peer_access = false
[node]
devices = 4
network_gb_per_s = 25
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SPEC)
    return read_user(path)


def test_a_spec_may_say_what_surrounds_a_device(mine) -> None:
    assert (mine.peer_access, mine.node_devices, mine.network_bytes_per_s) == (False, 4, 25e9)
    assert links.node_devices(mine) == 4
    assert links.inside(mine, 8, "all_reduce").medium == "host"
    far = links.across(mine, 8, "all_reduce")
    assert far is not None
    assert (far.medium, far.bytes_per_s) == ("network", 25e9)
    assert links.across(mine, 4, "all_reduce") is None


def test_a_misspelt_surrounding_is_refused(tmp_path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SPEC.replace("peer_access", "peer_acess"))
    with pytest.raises(FileFormatError, match="did you mean 'peer_access'"):
        read_user(path)


def test_measured_ranks_are_reproduced_and_others_lie_between() -> None:
    h100 = find("h100-sxm")
    two, three, four, eight = (links.inside(h100, n, "all_gather") for n in (2, 3, 4, 8))
    assert (two.latency_s, four.latency_s, eight.latency_s) == pytest.approx((8.8e-6, 11e-6, 15e-6))
    assert two.latency_s < three.latency_s < four.latency_s
    assert two.efficiency < three.efficiency < four.efficiency
    wide = links.inside(find("gb200"), 32, "all_gather")  # beyond the table: two more doublings
    assert wide.latency_s == pytest.approx(15e-6 + 2 * 4e-6)
    assert wide.efficiency == eight.efficiency


def test_peer_access_can_be_claimed_against_the_spec() -> None:
    card = find("rtx-4090")
    patched = replace(card, peer_access=True)
    assert links.medium(card, 2) == "host"
    assert links.medium(patched, 2) == "pcie"
    slow, fast = (links.inside(each, 4, "all_reduce") for each in (card, patched))
    assert fast.efficiency > 2 * slow.efficiency


def test_a_network_without_bandwidth_is_no_guess() -> None:
    with pytest.raises(UnknownSpecError, match="16 ranks of h100-sxm-80gb outgrow one node of 8"):
        links.across(find("h100-sxm"), 16, "send")
    assert links.source("pcie").startswith("aiconfigurator-core")

"""A user's TOML: units become SI, and each fault is one line that names path and key."""

import pytest

from roofcast.hardware import find
from roofcast.hardware.errors import FileFormatError

HEAD = 'id = "my-card"\nname = "My Card"\nvendor = "Me"\nkind = "gpu"\n'


@pytest.fixture
def spec(tmp_path):
    def write(body: str, head: str = HEAD):
        path = tmp_path / "my-card.toml"
        path.write_text(head + body, encoding="utf-8")
        return path

    return write


def test_units_become_si(spec):
    card = find(
        spec(
            "[memory]\ncapacity_gib = 24\nbandwidth_gb_per_s = 1_008\n"
            "[peak_tflops]\nbf16 = 165.2\n[compute]\nboost_clock_mhz = 2520\n"
            "[scale_up]\ngb_per_s_per_direction = 56.25\n"
        )
    )
    assert card.memory_capacity_bytes == 25_769_803_776
    assert card.memory_bandwidth_bytes_per_s == 1.008e12
    assert card.peak("bf16") == 165.2e12
    assert card.boost_clock_hz == 2.52e9
    assert card.scale_up_bytes_per_s == 56.25e9


def test_gb_and_gib_are_two_things(spec):
    assert find(spec("[memory]\ncapacity_gb = 24\n")).memory_capacity_bytes == 24_000_000_000


def test_a_path_may_be_given_as_text(spec):
    assert find(str(spec(""))).name == "My Card"


def test_without_sources_the_file_is_the_source_and_nothing_is_verified(spec):
    path = spec("[memory]\nbandwidth_gb_per_s = 100\n")
    provenance = find(path).provenance["memory_bandwidth_bytes_per_s"]
    assert provenance.source == str(path)
    assert provenance.confidence == "unverified"


def test_an_exception_overrides_the_source_of_the_fields_it_names(spec):
    card = find(
        spec(
            "[memory]\ncapacity_gb = 24\nbandwidth_gb_per_s = 100\n"
            '[provenance]\nconfidence = "primary"\nsources = ["Datasheet 7"]\n'
            '[[provenance.exceptions]]\nfields = ["memory.bandwidth_gb_per_s"]\n'
            'confidence = "inferred"\n'
        )
    )
    assert card.provenance["memory_bandwidth_bytes_per_s"].confidence == "inferred"
    assert card.provenance["memory_bandwidth_bytes_per_s"].source == "Datasheet 7"
    assert card.provenance["memory_capacity_bytes"].confidence == "primary"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "[memory]\nbandwith_gb_per_s = 100\n",
            "memory.bandwith_gb_per_s: unknown key; did you mean 'bandwidth_gb_per_s'",
        ),
        ("[memroy]\n", "memroy: unknown key; did you mean 'memory'"),
        ("[peak_tflops]\nbf17 = 1\n", "peak_tflops.bf17: unknown key; did you mean 'bf16'"),
        ('[memory]\nbandwidth_gb_per_s = "fast"\n', "bandwidth_gb_per_s: .*number, got 'fast'"),
        ("[memory]\nbandwidth_gb_per_s = -1\n", "bandwidth_gb_per_s: .*greater than 0, got -1"),
        ("[memory]\nbandwidth_gb_per_s = nan\n", "bandwidth_gb_per_s: .*finite number, got nan"),
        ("[memory]\nbandwidth_gb_per_s = inf\n", "bandwidth_gb_per_s: .*finite number, got inf"),
        ("[compute]\nunits = 2.5\n", "compute.units: .*integer, got 2.5"),
        ("[pcie]\nlanes = true\n", "pcie.lanes: .*integer, got True"),
        ("memory = 3\n", "memory: expected a table, got 3"),
        ("[memory]\ncapacity_gb = 1\ncapacity_gib = 1\n", "memory: give capacity_gb or"),
        ('[provenance]\nconfidence = "sure"\n', "provenance.confidence: .*got 'sure'"),
        (
            '[[provenance.exceptions]]\nfields = ["memory.bandwidth"]\n',
            "'memory.bandwidth' is no field with a source; did you mean 'memory.bandwidth_",
        ),
        ("[memory\n", "not valid TOML: .*line 5"),
        ("[memory]\nbandwidth_gb_per_s = 1", None),
    ],
)
def test_a_fault_is_one_line_with_path_key_and_nearest_match(spec, body, message):
    path = spec(body)
    if message is None:  # a missing last newline is no fault
        assert find(path).memory_bandwidth_bytes_per_s == 1e9
        return
    with pytest.raises(FileFormatError, match=message) as caught:
        find(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_keys_are_named(spec):
    with pytest.raises(FileFormatError, match=r"my-card\.toml: vendor: missing"):
        find(spec("", head='id = "x"\nname = "X"\nkind = "gpu"\n'))


def test_a_misspelt_key_is_named_before_the_one_it_hides(spec):
    with pytest.raises(FileFormatError, match="vendro: unknown key; did you mean 'vendor'"):
        find(spec("", head='id = "x"\nname = "X"\nkind = "gpu"\nvendro = "V"\n'))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileFormatError, match=r"absent\.toml: no such file"):
        find(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(FileFormatError, match=r"folder\.toml: cannot be read"):
        find(tmp_path / "folder.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(FileFormatError, match="expected UTF-8 text"):
        find(tmp_path / "latin.toml")

"""Messages are one line, say what was given, what is allowed and what is near."""

import pytest

from roofcast.hardware import errors


def test_a_misspelt_name_is_answered_with_the_nearest_and_the_choices():
    error = errors.unknown("engine", "vlm", ["torch", "vllm", "sglang"])
    assert str(error) == "unknown engine 'vlm'; did you mean 'vllm'? choices: torch, vllm, sglang"


def test_many_choices_are_replaced_by_a_hint():
    choices = [f"device-{number}" for number in range(30)]
    message = str(errors.unknown("device", "zzz", choices, hint="`roofcast device` lists them"))
    assert message == "unknown device 'zzz'; `roofcast device` lists them"


def test_matching_ignores_case_but_shows_the_name_as_written():
    assert "did you mean 'H100 SXM'?" in str(errors.unknown("device", "h100 sxn", ["H100 SXM"]))


def test_a_message_is_one_line_whatever_was_given():
    assert "\n" not in str(errors.unknown("model", "two\nlines", ["a"]))
    assert str(errors.InputError("one\n  two")) == "one two"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UnknownNameError, 2),
        (errors.AmbiguousNameError, 2),
        (errors.UnknownSpecError, 2),
        (errors.FileFormatError, 2),
        (errors.SchemaVersionError, 2),
        (errors.CapacityError, 2),
        (errors.MeasurementError, 1),
        (errors.RoofcastError, 1),
    ],
)
def test_exit_status_follows_the_tree(error, status):
    assert error.exit_status == status
    assert issubclass(error, errors.InputError) == (status == 2)


def test_the_tree_in_the_docstring_names_every_class():
    classes = [
        name
        for name, item in vars(errors).items()
        if isinstance(item, type) and issubclass(item, errors.RoofcastError)
    ]
    assert len(classes) == 9
    assert all(name in (errors.__doc__ or "") for name in classes)

"""A record that contradicts itself is refused with a line that names the field."""

import pytest

from engine_overlay.record import ABSENT, Range, RecordError, Target
from tests.core.support import record

GOOD = ("greeting:Greeter.greet", ("0123456789ab",))


def test_a_sound_record_is_accepted():
    patch = record(*GOOD)
    assert patch.targets[0].module == "greeting" and patch.targets[0].qualname == "Greeter.greet"
    assert str(patch.engines["vllm"]) == "0.1.0 to 0.2.0"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"patch_id": "Not-An-Id"}, "not a lower-case Python name"),
        ({"engines": {}}, "engines is empty"),
        ({"engines": {"vlm": Range("1", "2")}}, "unknown engine 'vlm'"),
        ({"fixed_in": {}}, "fixed_in must name the same engines"),
        ({"targets": ()}, "targets is empty"),
        ({"reads": (Target(path=GOOD[0], bodies=GOOD[1]),)}, "named twice"),
        ({"requires": ("politer",)}, "names itself"),
        ({"requires": ("a",), "conflicts": ("a",)}, "both requires and conflicts with a"),
        ({"scope": ()}, "scope is empty"),
        ({"remove_when": ""}, "need a sentence"),
    ],
)
def test_contradictions(changes, part):
    with pytest.raises(RecordError, match=part):
        record(*GOOD, **changes)


@pytest.mark.parametrize(("path", "bodies"), [("greeting.Greeter", (ABSENT,)), ("m:f", ()), ("m:f", ("xyz",))])
def test_bad_targets(path, bodies):
    with pytest.raises(RecordError):
        Target(path=path, bodies=bodies)

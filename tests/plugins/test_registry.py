"""Registries: our own names, those of installed packages and of a script, and one clear line otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge import plugins
from fedkge.errors import InputError, SettingError, UnknownNameError
from fedkge.plugins import Registry

GROUP = "fedkge.tests"
NAMES = st.text("abcXYZ-_", min_size=1, max_size=6)


def install(site: Path, package: str, entries: dict[str, str], source: str) -> None:
    """A package as an installer leaves it: its module, and its metadata beside."""
    (site / f"{package}.py").write_text(source)
    metadata = site / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {target}\n" for name, target in entries.items()]
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._installed.cache_clear()
    yield tmp_path
    plugins._installed.cache_clear()
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def fruits() -> Registry[object]:
    return Registry("fruit", GROUP, {"apple": "decimal:Decimal", "pear": "fractions:Fraction"})


@given(
    builtin=st.dictionaries(NAMES, st.integers(), max_size=5),
    local=st.dictionaries(NAMES, st.integers(), max_size=5),
    asked=NAMES,
)
def test_a_registry_is_a_dict_in_which_the_process_comes_first(builtin, local, asked):
    registry: Registry[int] = Registry("fruit", "fedkge.nobody", builtin)
    registry.update(local)
    model = {**builtin, **local}
    assert list(registry) == list(model)
    assert dict(registry) == model
    assert len(registry) == len(model)
    assert registry.get(asked, None) == model.get(asked)
    if asked in model:
        assert registry[asked] == model[asked]
    else:
        with pytest.raises(UnknownNameError, match=f"unknown fruit '{asked}'; known:"):
            registry[asked]
    for name, value in model.items():
        if name in builtin and builtin[name] is value:
            assert registry.require_everywhere(name) == value
        else:
            with pytest.raises(SettingError, match="exists in this process alone"):
                registry.require_everywhere(name)


def test_what_is_given_by_its_address_is_imported_when_it_is_wanted():
    registry: Registry[object] = Registry(
        "fruit", GROUP, {"plum": "no_such_module:Plum", "apple": "decimal:Decimal"}
    )
    assert list(registry) == ["plum", "apple"]
    assert registry["apple"].__name__ == "Decimal"
    with pytest.raises(ModuleNotFoundError):
        registry["plum"]


def test_an_unknown_name_suggests_the_nearest_wherever_it_comes_from(site):
    install(site, "orchard", {"quince": "orchard:Quince"}, "class Quince: pass\n")
    registry = fruits()
    registry["cherry"] = object()
    for wrong, near in (("aple", "apple"), ("quinze", "quince"), ("chery", "cherry")):
        with pytest.raises(
            UnknownNameError, match=rf"unknown fruit '{wrong}'; known: .* Did you mean '{near}'\?"
        ):
            registry[wrong]


def test_an_installed_package_adds_names_for_every_process(site):
    install(site, "orchard", {"quince": "orchard:Quince", "apple": "orchard:Quince"}, "class Quince: pass\n")
    registry = fruits()
    assert list(registry) == ["apple", "pear", "quince"]
    assert registry["quince"].__name__ == "Quince"
    assert registry.require_everywhere("quince") is registry["quince"]
    assert registry["apple"].__name__ == "Decimal"  # our own names cannot be taken


def test_a_name_that_only_a_script_has_is_refused_where_workers_would_not_find_it(site):
    registry = fruits()
    registry["cherry"] = object()
    with pytest.raises(SettingError) as caught:
        registry.require_everywhere("cherry")
    assert str(caught.value) == (
        "fruit 'cherry' exists in this process alone, and workers of Ray or Flower would not find it; "
        f'install it with an entry point of group "{GROUP}", or use --engine inline'
    )
    registry["apple"] = object()  # a worker would take ours
    with pytest.raises(SettingError, match="fruit 'apple' exists in this process alone"):
        registry.require_everywhere("apple")
    del registry["apple"]
    assert registry.require_everywhere("apple").__name__ == "Decimal"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('first line\\nsecond line')\n", "ValueError: first line second line"),
        ("Other = 1\n", "AttributeError: module 'broken' has no attribute 'Quince'"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it_and_leaves_other_names_alone(site, source, reason):
    install(site, "broken", {"quince": "broken:Quince"}, source)
    registry = fruits()
    with pytest.raises(InputError) as caught:
        registry["quince"]
    assert str(caught.value) == (
        f"fruit 'quince' of broken cannot be imported from broken:Quince ({reason}); mend or uninstall broken"
    )
    assert registry["apple"].__name__ == "Decimal"


def test_a_name_that_two_packages_claim_is_refused(site):
    install(site, "orchard", {"quince": "orchard:Quince"}, "class Quince: pass\n")
    install(site, "garden", {"quince": "garden:Quince"}, "class Quince: pass\n")
    with pytest.raises(InputError, match=r"fruit 'quince' comes from (orchard|garden) and (orchard|garden)"):
        fruits()["quince"]

"""Which version of which model answers, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from headrace.catalog import (
    LOADING,
    MAX_ABSENT,
    UNAVAILABLE,
    UNLOADED,
    UNLOADING,
    Absent,
    ModelCatalog,
)
from headrace.errors import NotFoundError, RequestError, UnavailableError
from headrace.model import ServedModel
from headrace.slots.state import SlotState
from helpers.served import catalog_of, served


def model(name: str = "m", version: int = 1) -> ServedModel:
    return served("x FP32[?,1]", "y FP32[?,1]", name=name, version=version)


def fault(served_model: ServedModel) -> None:
    for slot in served_model.line.pool.slots:
        slot.move_to(SlotState.FAULTED)


def test_the_newest_version_is_so_by_number() -> None:
    """Ten comes after nine, and was added before it."""
    catalog = catalog_of(model(version=10), model(version=9))
    assert catalog.find("m", "").spec.version == 10
    assert catalog.find("m", "9").spec.version == 9


def test_a_failed_version_is_passed_over() -> None:
    """Who asks for no version gets the newest that works; who asks for it by number, the truth."""
    newest = model(version=2)
    catalog = catalog_of(model(version=1), newest)
    fault(newest)
    assert catalog.find("m", "").spec.version == 1
    assert not catalog.find("m", "2").is_ready
    fault(catalog.find("m", "1"))
    with pytest.raises(UnavailableError, match="'m' is not at ready state"):
        catalog.find("m", "")


@pytest.mark.parametrize("version", ["x", "-1", "1.0", " 1", "1 ", "٣", "9" * 19, "0x1", "1\0"])
def test_versions_that_are_no_numbers(version: str) -> None:
    """Are the caller's fault, whether the model is there or not."""
    for name in ("m", "nothing"):
        with pytest.raises(RequestError, match="expected a number") as caught:
            catalog_of(model()).find(name, version)
        assert not isinstance(caught.value, NotFoundError)


def test_what_is_not_there() -> None:
    """A model, and a version of one: the text tells which there are."""
    catalog = catalog_of(model(version=1), model(version=3))
    with pytest.raises(NotFoundError, match="unknown model: 'other' is not found"):
        catalog.find("other", "")
    with pytest.raises(NotFoundError, match="version 2 is not found; there is 1, 3"):
        catalog.find("m", "2")
    with pytest.raises(NotFoundError) as caught:
        catalog.find("n" * 10_000, "")
    assert len(str(caught.value)) < 200


def test_what_could_not_be_loaded_is_not_ready() -> None:
    """It exists: UNAVAILABLE, whichever version is asked for."""
    catalog = catalog_of(model(version=1))
    catalog.add_failed("m", 2, "why")
    catalog.add_failed("whole", 0, "why not")
    for name, version in (("m", "2"), ("whole", ""), ("whole", "7")):
        with pytest.raises(UnavailableError, match="is not at ready state"):
            catalog.find(name, version)
    assert catalog.find("m", "").spec.version == 1


def test_the_index_lists_each_version_once_and_in_order() -> None:
    """Versions as numbers, with state and reason."""
    broken = model("b", 2)
    catalog = catalog_of(model("b", 10), broken, model("a"))
    fault(broken)
    catalog.add_failed("b", 3, "no such operator")
    catalog.add_failed("c", 0, "no version")
    listed = [(e.name, e.version, e.state, e.reason) for e in catalog.index()]
    assert listed == [
        ("a", "1", "READY", ""),
        ("b", "2", "UNAVAILABLE", "its slots have failed"),
        ("b", "3", "UNAVAILABLE", "no such operator"),
        ("b", "10", "READY", ""),
        ("c", "", "UNAVAILABLE", "no version"),
    ]


@pytest.mark.parametrize("strict", [True, False])
def test_readiness(strict: bool) -> None:
    """Strict: every model must be. Lenient: the server must answer. Neither when it is dead."""
    catalog = ModelCatalog(strict_readiness=strict)
    one, other = model("a"), model("b")
    catalog.add(one)
    catalog.add(other)
    assert catalog.is_ready
    fault(other)
    assert catalog.is_ready == (not strict)
    lives = True
    catalog.watch(lambda: lives)
    assert catalog.is_ready == (not strict)
    lives = False
    assert not catalog.is_ready


def test_a_failed_load_counts_for_strict_readiness() -> None:
    """As a failed slot does."""
    for strict in (True, False):
        catalog = ModelCatalog(strict_readiness=strict)
        catalog.add(model())
        catalog.add_failed("other", 0, "why")
        assert catalog.is_ready == (not strict)


def test_every_change_is_a_new_generation() -> None:
    """What was looked up before must be looked up anew."""
    catalog = ModelCatalog()
    seen = {catalog.generation}
    catalog.add(model())
    seen.add(catalog.generation)
    catalog.add_failed("other", 1, "why")
    seen.add(catalog.generation)
    assert len(seen) == 3


def test_versions_are_swapped_all_at_once() -> None:
    """What is no longer served is given back; what stays is not touched."""
    old, kept, new = model(version=1), model(version=2), model(version=3)
    catalog = catalog_of(old, kept, model("other"))
    seen = catalog.generation
    assert catalog.serve("m", [kept, new]) == [old]
    assert catalog.generation > seen
    assert sorted(catalog.versions("m")) == [2, 3]
    assert [each.spec.name for each in catalog.models()] == ["m", "m", "other"]


def test_a_version_can_be_replaced_by_itself() -> None:
    """The file was written anew: same number, another model."""
    old, new = model(), model()
    catalog = catalog_of(old)
    assert catalog.serve("m", [new]) == [old]
    assert catalog.find("m", "1") is new
    assert catalog.serve("m", [new]) == []


def test_who_iterates_while_versions_are_swapped_sees_one_state() -> None:
    """Readers on other threads never see half of a swap, and never an error."""
    catalog = catalog_of(model(version=1), model(version=2))
    models = catalog.models()
    first = next(models)
    catalog.serve("m", [])
    assert [first.spec.version, *(each.spec.version for each in models)] == [1, 2]


def test_a_model_that_was_unloaded_is_not_there_and_keeps_nobody_from_being_ready() -> None:
    """NOT_FOUND as Triton says it, and UNLOADING before."""
    catalog = catalog_of(model("other"), model())
    catalog.serve("m", [])
    for absent in (Absent(UNLOADING, "", is_fault=False), Absent(UNAVAILABLE, UNLOADED, False)):
        catalog.mark("m", 1, absent)
        with pytest.raises(NotFoundError, match="'m' has no available versions"):
            catalog.find("m", "")
        assert catalog.is_ready
        assert (catalog.index()[0].state, catalog.index()[0].reason) == absent[:2]
    assert catalog.failures == {}


def test_a_model_that_is_loading_is_not_ready() -> None:
    """Neither is a strict server, as Triton's; one that has it already is."""
    catalog = ModelCatalog()
    catalog.mark("m", 1, Absent(LOADING, "", is_fault=True))
    with pytest.raises(UnavailableError, match="is not at ready state"):
        catalog.find("m", "")
    ready = [catalog.is_ready]
    catalog.serve("m", [model()])
    ready.append(catalog.is_ready)
    catalog.mark("m", 1, Absent(LOADING, "", is_fault=False))
    ready.append(catalog.is_ready)
    assert ready == [False, True, True]
    assert [entry.state for entry in catalog.index()] == ["READY"]


def test_what_failed_is_forgotten_when_it_is_served_or_told_to_be() -> None:
    """By a later load of it, or by an unload."""
    catalog = ModelCatalog()
    catalog.add_failed("m", 0, "no such file")
    catalog.add_failed("m", 2, "broken")
    catalog.serve("m", [model()])
    assert catalog.failures == {("m", 2): "broken"}
    catalog.forget("m")
    assert catalog.failures == {}


def test_what_failed_is_written_off_when_its_model_is_unloaded() -> None:
    """It keeps nobody from being ready any more."""
    catalog = ModelCatalog()
    catalog.add_failed("m", 2, "broken")
    catalog.add_failed("other", 1, "broken")
    catalog.write_off("m")
    assert list(catalog.failures) == [("other", 1)]
    with pytest.raises(NotFoundError, match="'m' has no available versions"):
        catalog.find("m", "2")


def test_what_is_remembered_of_absent_versions_is_bounded() -> None:
    """Clients may name as many models as they like."""
    catalog = ModelCatalog()
    for number in range(MAX_ABSENT + 5):
        catalog.mark(f"m{number}", 1, Absent(UNAVAILABLE, UNLOADED, is_fault=False))
    assert len(catalog.index()) == MAX_ABSENT
    with pytest.raises(NotFoundError, match="is not found"):
        catalog.find("m0", "")

"""Finding models on disk: what is served, what is a fault, what is passed over with a note."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from headrace.engines.repository import (
    Found,
    find_models,
    find_places,
    read_model,
    single_file,
)
from headrace.errors import ConfigError
from helpers.model_repository import config_of, write_model

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


def reasons(found: Found) -> str:
    return "\n".join(map(str, found.faults))


def only_fault(found: Found) -> ConfigError:
    assert len(found.faults) == 1, reasons(found)
    return found.faults[0]


def names(found: Found) -> list[str]:
    return [source.name for source in found.models]


def test_an_empty_configuration_is_filled_from_folder_and_file(tmp_path: Path) -> None:
    """Name and platform come from the folder and from the file in its version."""
    write_model(tmp_path, "b", filename="model.plan")
    write_model(tmp_path, "a", versions=[1, 2, 10])
    found = find_models([tmp_path])
    assert not found.faults
    first, second = found.models
    assert (first.config.name, first.config.platform) == ("a", "onnxruntime_onnx")
    assert (first.config.backend, first.config.default_model_filename) == (
        "onnxruntime",
        "model.onnx",
    )
    assert first.versions == {10: tmp_path / "a" / "10" / "model.onnx"}
    assert first.config_path == tmp_path / "a" / "10" / "model.onnx"
    assert (second.config.name, second.config.platform) == ("b", "tensorrt_plan")


@pytest.mark.parametrize(
    "config",
    [
        'platform: "tensorrt_plan"',
        'backend: "tensorrt"',
        'platform: "tensorrt_plan" backend: "tensorrt"',
        'default_model_filename: "model.plan"',
    ],
)
def test_the_platform_comes_from_either_field_or_the_file_s_name(
    tmp_path: Path, config: str
) -> None:
    """Each of them alone is enough, whatever else lies in the folder."""
    write_model(tmp_path, "m", config, extra={"1/model.plan": b"ftrt"})
    (source,) = find_models([tmp_path]).models
    assert (source.config.platform, source.config.backend) == ("tensorrt_plan", "tensorrt")
    assert source.versions[1].name == "model.plan"


def test_a_plan_goes_before_an_onnx_file(tmp_path: Path) -> None:
    """With both and no word of the configuration the plan is served, as Triton does."""
    write_model(tmp_path, "m", extra={"1/model.plan": b"ftrt"})
    assert find_models([tmp_path]).models[0].config.platform == "tensorrt_plan"


def test_a_file_of_another_name_is_served(tmp_path: Path) -> None:
    """`default_model_filename` names the file; its suffix tells the platform."""
    write_model(tmp_path, "m", 'default_model_filename: "net.onnx"', filename="net.onnx")
    (source,) = find_models([tmp_path]).models
    assert source.versions == {1: tmp_path / "m" / "1" / "net.onnx"}
    assert source.config_path == tmp_path / "m" / "config.pbtxt"


@pytest.mark.parametrize(
    ("capability", "filename"),
    [("8.0", "a100.plan"), ("7.5", "t4.plan"), ("9.0", "model.plan"), ("", "model.plan")],
)
def test_the_plan_is_chosen_by_compute_capability(
    tmp_path: Path, capability: str, filename: str
) -> None:
    """A capability that is not listed, and a CPU, take the default file."""
    config = """cc_model_filenames { key: "8.0" value: "a100.plan" }
        cc_model_filenames { key: "7.5" value: "t4.plan" }"""
    extra = {"1/a100.plan": b"ftrt", "1/t4.plan": b"ftrt"}
    write_model(tmp_path, "m", config, filename="model.plan", extra=extra)
    (source,) = find_models([tmp_path], compute_capability=capability).models
    assert source.versions[1].name == filename


def test_an_onnx_model_may_be_a_folder(tmp_path: Path) -> None:
    """A model in several files is a folder named like the file, with the file in it."""
    folder = write_model(
        tmp_path, "m", versions=[], extra={"1/model.onnx/model.onnx": b"", "1/model.onnx/w": b""}
    )
    (source,) = find_models([tmp_path]).models
    assert source.versions == {1: folder / "1" / "model.onnx" / "model.onnx"}


def test_versions_follow_the_policy(tmp_path: Path) -> None:
    """All of a policy's versions are found, in ascending order."""
    write_model(tmp_path, "m", "version_policy { latest { num_versions: 2 } }", versions=[10, 9, 1])
    (source,) = find_models([tmp_path]).models
    assert list(source.versions) == [9, 10]


def test_a_specific_version_that_is_missing_is_noted(tmp_path: Path) -> None:
    """The versions that are there are served all the same."""
    write_model(tmp_path, "m", "version_policy { specific { versions: [ 1, 3 ] } }")
    found = find_models([tmp_path])
    assert list(found.models[0].versions) == [1]
    assert any("there is no version 3" in note for note in found.notes)


def test_no_version_that_the_policy_takes_is_a_fault(tmp_path: Path) -> None:
    """The fault says which versions are there."""
    write_model(tmp_path, "m", "version_policy { specific { versions: [ 7 ] } }", versions=[1, 2])
    assert "no version to serve (there: 1, 2)" in only_fault(find_models([tmp_path])).reason


def test_what_is_no_version_is_passed_over_with_a_note(tmp_path: Path) -> None:
    """Leading zeros, words, and files with a version's name; the layout's own folders silently."""
    folder = write_model(tmp_path, "m", versions=[1, "01", "0", "-2", "latest"])
    (folder / "5").write_text("")
    for name in ("configs", "warmup", "initial_state", ".git"):
        (folder / name).mkdir()
    found = find_models([tmp_path])
    assert list(found.models[0].versions) == [1]
    noted = [Path(note.split(": ignored")[0]).name for note in found.notes]
    assert noted == ["-2", "0", "01", "5", "latest"]


@pytest.mark.parametrize(
    ("config", "field", "reason"),
    [
        ('name: "other"', "name", "other"),
        ('platform: "pytorch_libtorch"', "platform", "tensorrt_plan"),
        ('backend: "python"', "backend", '"onnxruntime"'),
        ('platform: "tensorrt_plan" backend: "onnxruntime"', "backend", "does not go with"),
        (
            'default_model_filename: "model.bin"',
            "default_model_filename",
            "does not tell the platform",
        ),
        ('platform: "ensemble"', "ensemble_scheduling", "is missing"),
        ("ensemble_scheduling { }", "ensemble_scheduling.step", "is missing"),
        ('backend: "onnxruntime" ensemble_scheduling { }', "backend", "has no ensemble_scheduling"),
        (
            'platform: "onnxruntime_onnx" ensemble_scheduling { }',
            "platform",
            "has no ensemble_scheduling",
        ),
        (
            'backend: "onnxruntime" default_model_filename: "../../x"',
            "default_model_filename",
            "plain file",
        ),
        (
            'backend: "onnxruntime" default_model_filename: "/etc/x"',
            "default_model_filename",
            "plain file",
        ),
        (
            'backend: "onnxruntime" default_model_filename: ".."',
            "default_model_filename",
            "plain file",
        ),
        (
            'cc_model_filenames [ { key: "8.0" value: "../x" } ]',
            'cc_model_filenames["8.0"]',
            "plain file",
        ),
    ],
)
def test_a_wrong_configuration_is_a_fault_of_its_model_alone(
    tmp_path: Path, config: str, field: str | None, reason: str
) -> None:
    """The fault names file, field and reason; the other model is served."""
    write_model(tmp_path, "wrong", config)
    write_model(tmp_path, "right")
    found = find_models([tmp_path])
    assert names(found) == ["right"]
    faults = [fault for fault in found.faults if fault.field == field]
    assert [str(tmp_path / "wrong" / "config.pbtxt")] == [fault.path for fault in faults]
    assert reason in faults[0].reason


def test_all_faults_are_collected(tmp_path: Path) -> None:
    """Each wrong model has its fault, and one model can have several."""
    write_model(tmp_path, "a", "max_batch_siz: 1")
    write_model(tmp_path, "b", 'name: "x" cc_model_filenames { key: "8.0" value: "" }')
    write_model(tmp_path, "c", filename="model.bin")
    write_model(tmp_path, "d", 'backend: "onnxruntime" version_policy { all { } }', versions=[1, 2])
    (tmp_path / "d" / "1" / "model.onnx").unlink()
    (tmp_path / "d" / "2" / "model.onnx").rename(tmp_path / "d" / "2" / "model.ONNX")
    found = find_models([tmp_path])
    assert not found.models
    assert [Path(str(fault.path)).relative_to(tmp_path).parts[0] for fault in found.faults] == list(
        "abbcdd"
    )
    assert {name: len(faults) for name, faults in found.wrong.items()} == {
        "a": 1,
        "b": 2,
        "c": 1,
        "d": 2,
    }
    assert "in the folder: nothing" in found.faults[4].reason
    assert "in the folder: model.ONNX" in found.faults[5].reason


def test_a_name_in_two_repositories_is_served_by_neither(tmp_path: Path) -> None:
    """The fault names both folders; other names are served from both."""
    for place, other in (("one", "a"), ("two", "b")):
        write_model(tmp_path / place, "same")
        write_model(tmp_path / place, other)
    found = find_models([tmp_path / "two", tmp_path / "one"])
    assert names(found) == ["a", "b"]
    reason = only_fault(found).reason
    assert list(found.wrong) == ["same"]
    assert str(tmp_path / "one" / "same") in reason
    assert str(tmp_path / "two" / "same") in reason


def test_faults_of_equal_names_come_in_the_names_order(tmp_path: Path) -> None:
    """Not in the order in which repositories were given."""
    for place, model in (("one", "b"), ("two", "a"), ("three", "a"), ("three", "b")):
        write_model(tmp_path / place, model)
    found = find_models([tmp_path / place for place in ("one", "two", "three")])
    assert list(found.wrong) == ["a", "b"]


def test_a_wrong_model_still_holds_its_name(tmp_path: Path) -> None:
    """A fault in one of two equal names does not let the other one through."""
    write_model(tmp_path / "one", "same")
    write_model(tmp_path / "two", "same", "nonsense")
    found = find_models([tmp_path / "one", tmp_path / "two"])
    assert not found.models
    assert len(found.faults) == 2


def test_a_repository_given_twice_counts_once(tmp_path: Path) -> None:
    """Under its own name or through a link."""
    write_model(tmp_path / "repo", "m")
    (tmp_path / "link").symlink_to("repo")
    found = find_models([tmp_path / "repo", tmp_path / "link", tmp_path / "repo"])
    assert names(found) == ["m"]
    assert not found.faults
    assert len(found.notes) == 2


def test_links_are_followed_out_of_the_repository(tmp_path: Path) -> None:
    """As container platforms mount them: a link to a hidden folder, or to elsewhere."""
    write_model(tmp_path / "elsewhere", "m")
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "..data").symlink_to(tmp_path / "elsewhere")
    (repository / "m").symlink_to("..data/m")
    found = find_models([repository])
    assert names(found) == ["m"]
    assert (found.faults, found.notes) == ([], [])


def test_odd_entries_of_a_repository(tmp_path: Path) -> None:
    """Files are noted, hidden entries passed over, links to nothing and loops are faults."""
    write_model(tmp_path, "m")
    (tmp_path / "README.md").write_text("")
    (tmp_path / "link.md").symlink_to("README.md")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    found = find_models([tmp_path])
    assert names(found) == ["m"]
    assert [Path(str(fault.path)).name for fault in found.faults] == ["gone", "loop"]
    assert [Path(note.split(":")[0]).name for note in found.notes] == ["README.md", "link.md"]


@pytest.mark.parametrize("name", ["a..b", "a\nb", "back\\slash", "esc\x1b[31m", b"caf\xe9"])
def test_names_that_cannot_be_models_are_faults(tmp_path: Path, name: str | bytes) -> None:
    """Also names that are not UTF-8; the fault can be printed and sent."""
    (tmp_path / os.fsdecode(name) / "1").mkdir(parents=True)
    found = find_models([tmp_path])
    assert not found.models
    text = str(only_fault(found))
    assert "cannot be a model's name" in text
    assert text.isprintable()


def test_a_configuration_that_is_a_folder_or_a_link_to_nothing_is_a_fault(tmp_path: Path) -> None:
    """It is there, so it is not as if there were none."""
    write_model(tmp_path, "a", extra={"config.pbtxt/x": b""})
    folder = write_model(tmp_path, "b")
    (folder / "config.pbtxt").symlink_to("nowhere")
    found = find_models([tmp_path])
    assert [fault.reason for fault in found.faults] == [
        "is not a plain file",
        "cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_repository_that_cannot_be_read_is_a_fault(tmp_path: Path, kind: str) -> None:
    """The other repositories are served."""
    write_model(tmp_path / "right", "m")
    wrong = tmp_path / "wrong"
    if kind == "file":
        wrong.write_text("")
    found = find_models([wrong, tmp_path / "right"])
    assert names(found) == ["m"]
    assert only_fault(found).path == str(wrong)
    assert "model repository cannot be read" in only_fault(found).reason


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder that anybody may enter; the test goes on as a user whom permissions stop."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        user = os.geteuid()
        if user == 0:
            shutil.chown(folder, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(user)


def test_folders_without_permission_are_faults(as_nobody: Path) -> None:
    """An unreadable model, version and configuration each stop their own model only."""
    for name in ("a", "b", "c", "d"):
        write_model(as_nobody, name, "")
    paths = [as_nobody / "a", as_nobody / "b" / "1", as_nobody / "c" / "config.pbtxt"]
    for path in paths:
        path.chmod(0)
    found = find_models([as_nobody])
    for path in paths:
        path.chmod(0o755)
    assert names(found) == ["d"]
    assert [fault.path for fault in found.faults] == [str(path) for path in paths]
    assert all("Permission denied" in fault.reason for fault in found.faults)


def test_an_empty_repository_has_no_models_and_no_faults(tmp_path: Path) -> None:
    """A server may start with nothing to serve."""
    assert find_models([tmp_path]) == Found()


def test_a_single_file_is_a_model(tmp_path: Path) -> None:
    """Named like the file, version 1, without Triton's bound of four rows."""
    path = tmp_path / "digits.onnx"
    path.write_bytes(b"\x08")
    source = single_file(path)
    assert (source.name, source.versions) == ("digits", {1: path})
    assert source.config.platform == "onnxruntime_onnx"
    assert source.default_max_batch_size > 5
    assert single_file(path.rename(tmp_path / "net.engine")).config.backend == "tensorrt"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("m.pt", "does not end in one of .plan"),
        ("gone.onnx", "no such file"),
        ("", "--model-repository"),
        ("a..b.onnx", "'..'"),
    ],
)
def test_a_single_file_that_is_no_model_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    """The reason says what would be."""
    if name and not name.startswith("gone"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=reason):
        single_file(tmp_path / name)


def test_single_files_and_repositories_share_their_names(tmp_path: Path) -> None:
    """A file named like a model of the repository is served by neither; a wrong file is a fault."""
    write_model(tmp_path / "repo", "m")
    file = tmp_path / "m.onnx"
    other = tmp_path / "other.onnx"
    for each in (file, other):
        each.write_bytes(b"\x08")
    found = find_models([tmp_path / "repo"], [file, other, tmp_path / "gone.onnx"])
    assert names(found) == ["other"]
    assert "no such file" in found.faults[0].reason
    assert 'model "m" is there 2 times' in found.faults[1].reason


def test_one_model_is_found_by_its_name(tmp_path: Path) -> None:
    """Out of several repositories and files, as the search for all finds it."""
    write_model(tmp_path / "a", "one", 'platform: "onnxruntime_onnx"')
    write_model(tmp_path / "b", "two")
    file = tmp_path / "three.onnx"
    file.write_bytes(b"\x08\x08")
    where = ([tmp_path / "a", tmp_path / "b"], [file])
    for model in find_models(*where).models:
        assert read_model(find_places(*where).one(model.name)) == model
    assert list(find_places(*where).by_name) == ["one", "three", "two"]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "../b/two", "b/two", "two/", "./two", "TWO", "two\0", "t*", "two\n"],
)
def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    """It is looked for among the names that are there."""
    write_model(tmp_path / "b", "two")
    with pytest.raises(ConfigError, match="failed to poll from model repository"):
        find_places([tmp_path / "b"]).one(name)


def test_one_model_with_faults_tells_all_of_them(tmp_path: Path) -> None:
    """And one that is there twice is served by neither."""
    write_model(tmp_path / "a", "bad", 'name: "good" default_model_filename: "../x.onnx"')
    with pytest.raises(ConfigError, match=r'name: "good".*default_model_filename'):
        read_model(tmp_path / "a" / "bad")
    write_model(tmp_path / "b", "bad")
    with pytest.raises(ConfigError, match="is there 2 times"):
        find_places([tmp_path / "a", tmp_path / "b"]).one("bad")


def test_a_configuration_can_be_given_in_place_of_the_written_one(tmp_path: Path) -> None:
    """It is checked as that would be, and faults name it; the given one is not changed."""
    write_model(tmp_path, "m", "max_batch_size: 4", versions=(1, 2))
    given = config_of("max_batch_size: 8 version_policy { all {} }")
    source = read_model(tmp_path / "m", override=given)
    assert (source.config.max_batch_size, sorted(source.versions)) == (8, [1, 2])
    assert (given.name, str(source.config_path)) == ("", "config override")
    with pytest.raises(ConfigError, match="config override: name"):
        read_model(tmp_path / "m", override=config_of('name: "other"'))
    with pytest.raises(ConfigError, match="config override: default_model_filename"):
        read_model(tmp_path / "m", override=config_of('default_model_filename: "/etc/x.onnx"'))
    long = config_of(f'default_model_filename: "{"x" * 300}.onnx"')
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        read_model(tmp_path / "m", override=long)


def test_a_model_given_as_a_file_takes_no_other_configuration(tmp_path: Path) -> None:
    """It has none to take the place of."""
    file = tmp_path / "m.onnx"
    file.write_bytes(b"\x08\x08")
    with pytest.raises(ConfigError, match="takes no other configuration"):
        read_model(file, override=config_of("max_batch_size: 8"))


def test_what_cannot_be_looked_into_is_told(tmp_path: Path) -> None:
    """A model may be there that was not seen: who unloads what is gone must know."""
    write_model(tmp_path / "a", "m")
    places = find_places([tmp_path / "a", tmp_path / "gone"])
    assert (list(places.by_name), len(places.faults)) == (["m"], 1)
    with pytest.raises(ConfigError, match=r"failed to poll.*gone"):
        places.one("other")

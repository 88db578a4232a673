"""Climbs the ladder: measures rung after rung of one model and returns the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.device import open_device
from headrace.device.base import Device
from headrace.engines.base import Engine, Shape
from headrace.engines.model_folder import FolderReader
from headrace.engines.platforms import ONNX, TENSORRT, Platform, platform_of_file
from headrace.errors import ConfigError
from headrace.ladder.figures import Result, paces
from headrace.ladder.measure import Clock, measure
from headrace.ladder.report import Report
from headrace.ladder.rungs import Rung, batch_rungs, graph_rungs, plain_rungs
from headrace.ladder.subject import Subject


def climb(
    subject: Subject,
    wanted: Collection[str],
    *,
    seconds_s: float,
    clock: Clock,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Measure every rung that is wanted and possible here; `on_result` hears of each at once."""
    results: list[Result] = []

    def measure_all(rungs: list[Rung]) -> None:
        for rung in rungs:
            results.append(measure(subject, rung, seconds_s=seconds_s, clock=clock))
            on_result(results[-1])

    measure_all(plain_rungs(wanted, subject.rows))
    if subject.has_graphs:
        measure_all(graph_rungs(wanted, paces(results)))
    if subject.is_batching:
        measure_all(batch_rungs(wanted, paces(results), subject.max_rows))
    return results


@contextmanager
def opened_subject(
    path: Path, *, device: str, gpu: int, shapes: Mapping[str, Shape], rows: int
) -> Iterator[tuple[Subject, str]]:
    """Open a model file, or the newest version in a model's folder; yield it and its platform.

    Raises:
        HeadraceError: It cannot be measured here; says why.
    """
    path = _model_file(path)
    platform = platform_of_file(path.name)
    if platform is None:
        suffixes = ", ".join((*ONNX.suffixes, *TENSORRT.suffixes))
        raise ConfigError(f"does not end in one of {suffixes}", path=str(path))
    with ExitStack() as stack:
        opened = open_device(device, gpu)
        stack.callback(opened.close)
        opened.bind_thread()
        engine = _open_engine(path, opened, platform)
        stack.callback(engine.close)
        subject = Subject(opened, engine, shapes=shapes, rows=rows)
        yield subject, platform.name


def describe(device: Device) -> str:
    """Name a device for people."""
    name: str = getattr(device, "name", "")
    place = device.kind if device.kind == "host" else f"{device.kind} {device.index}"
    return f"{place} ({name})" if name else place


def report_on(
    subject: Subject, results: list[Result], *, model: str, platform: str, seconds_s: float
) -> Report:
    """Put the report together; before the subject is closed."""
    return Report(
        model, platform, describe(subject.device), subject.shapes, seconds_s, tuple(results)
    )


def _open_engine(path: Path, device: Device, platform: Platform) -> Engine:
    if platform is ONNX:
        from headrace.engines.ort import OrtEngine

        return OrtEngine(path, device)
    from headrace.engines.trt import open_engine

    return open_engine(path, device)


def _model_file(path: Path) -> Path:
    """Return the file itself, or the newest version of a model's folder."""
    if not path.is_dir():
        return path
    faults: list[ConfigError] = []
    path = path.absolute()  # so that "." has a name
    source = FolderReader(faults, []).read(path, path.parent)
    if source is None or not source.versions:
        reasons = "\n".join(str(fault) for fault in faults)
        raise ConfigError(reasons or "holds no version of a model", path=str(path))
    return source.versions[max(source.versions)]

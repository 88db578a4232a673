"""Model control over ONNX Runtime on the CPU, without a transport; a test steps the core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headrace.catalog import ModelCatalog
from headrace.control.model_control import ModelControl
from headrace.control.polling import RepositoryPoll
from headrace.control.shelf import Shelf
from headrace.control.swap import Swap
from headrace.control.uploads import UploadBounds, Uploads
from headrace.control.versions import VersionLoader
from headrace.device.host import HostDevice
from headrace.link.local import LocalLink
from headrace.loader import Loader, LoadOptions
from headrace.metrics import Metrics
from headrace.rpc.infer import InferService
from headrace.rpc.prepare import Limits
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.admission import Admission
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace_proto.v1 import inference_pb2 as pb
from helpers import onnx_models
from helpers.swap_rig import Watch

BLOCKS_BYTES = 16 << 20
Result = TypeVar("Result")


@dataclass
class Call:
    """A call that keeps how it was answered."""

    replies: list[bytes] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)

    def metadata(self) -> Metadata:
        return ()

    def respond(self, reply: bytes) -> None:
        self.replies.append(reply)

    def fail(self, status: Status) -> None:
        self.statuses.append(status)


class ControlRig:
    """A repository, and everything that loads out of it."""

    def __init__(self, folder: Path, *, bounds: UploadBounds | None = None) -> None:
        self.folder = folder
        self.device = HostDevice()
        self.blocks = BlockPool(self.device, BLOCKS_BYTES)
        self.metrics = Metrics()
        self.catalog = ModelCatalog()
        admission = Admission(self.blocks, max_waiting_bytes=1 << 30)
        scheduler = Scheduler(self.blocks, Poller(), admission, clock=time.monotonic)
        self.link = LocalLink(scheduler)
        self.device.on_progress = self.step
        self.watch = Watch()
        self.uploads = Uploads(bounds or UploadBounds(is_allowed=True))
        self.is_leaving = False
        self.num_loads = 0
        self.on_load: Callable[[], None] = lambda: None
        self.shelf = Shelf([folder], [], self.uploads, compute_capability="")
        self.versions = VersionLoader(
            self.device,
            self.catalog,
            self.metrics,
            self.loader,
            blocks_bytes=BLOCKS_BYTES,
            is_leaving=lambda: self.is_leaving,
            shown=self.uploads.hidden,
        )
        self.swap = Swap(
            *(self.catalog, self.link, self.metrics, self.watch),
            grace_s=10.0,
            on_loop=lambda work: work(),
        )
        self.control = ModelControl(
            *(self.shelf, self.versions, self.swap, self.catalog),
            bind_thread=self.device.bind_thread,
            is_leaving=lambda: self.is_leaving,
        )
        self.poll = RepositoryPoll(
            *(self.control, self.shelf, self.catalog, {}), is_leaving=lambda: self.is_leaving
        )
        self.infer = InferService(
            self.catalog, self.link, Limits(), clock=time.monotonic, max_request_bytes=1 << 20
        )

    def step(self) -> None:
        """Step the core until there is no more to do at once."""
        while self.link.step(time.monotonic()):
            pass

    def loader(self, blocks: BlockPool) -> Loader:
        """A loader that counts."""
        self.num_loads += 1
        self.on_load()
        parts = (self.device, blocks, self.metrics, LoadOptions())
        return Loader(*parts, clock=time.monotonic, catalog=self.catalog)

    def put(self, name: str, version: int, value: float, config: str | None = None) -> Path:
        """Write a version that adds `value`; its file has another size for another value."""
        path = self.folder / name / str(version) / "model.onnx"
        built = onnx_models.adds(value)
        built.doc_string = "x" * int(value)
        onnx_models.save(built, path)
        if config is not None:
            (self.folder / name / "config.pbtxt").write_text(config)
        return path

    def put_chain(self, name: str, *models: str) -> Path:
        """Write an ensemble that hands `x` from model to model; see `write_chain`."""
        return write_chain(self.folder, name, *models)

    def begin(self, name: str, version: str = "") -> Call:
        """Hand a request in."""
        request = pb.ModelInferRequest(model_name=name, model_version=version)
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        request.raw_input_contents.append(bytes(16))
        call = Call()
        self.infer.accept(
            request.SerializeToString(), call, received_at=time.monotonic(), deadline=None
        )
        return call

    def ask(self, name: str, version: str = "") -> float | str:
        """Return what a model adds, or the text that refuses the request."""
        call = self.begin(name, version)
        give_up_at = time.monotonic() + 10
        while not (call.replies or call.statuses):
            assert time.monotonic() < give_up_at
            self.step()
        return added_by(call)[0]

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end."""
        return asyncio.run(work)

    def load(self, name: str, *arguments: Any) -> None:
        """Load as a client does."""
        self.run(self.control.load(name, *arguments))

    def unload(self, name: str) -> None:
        """Unload as a client does, and see it off."""
        self.run(self.control.unload(name))
        self.swap.see_off()

    def close(self) -> None:
        """Close in the order of the application, and hold that nothing stays open."""
        assert self.run(self.control.close(10.0))
        self.swap.see_off()
        self.uploads.close()
        self.link.close()
        self.catalog.close()
        self.blocks.close()
        assert self.device._ledger.names() == []
        self.device.close()


def added_by(call: Call) -> tuple[float | str, str]:
    """What was added to zero, or the text that refused the call; and the version that answered."""
    if call.statuses:
        (status,) = call.statuses
        return status.text, ""
    (reply,) = call.replies
    response = pb.ModelInferResponse.FromString(reply)
    values = np.frombuffer(response.raw_output_contents[0], np.float32)
    assert len(set(values.tolist())) == 1
    return float(values[0]), response.model_version


def write_chain(repository: Path, name: str, *models: str) -> Path:
    """Write an ensemble of models like `onnx_models.adds`: each works on what the last gave.

    Returns:
        Its configuration.
    """
    tensors = ["x", *(f"t{index}" for index in range(1, len(models))), "y"]
    steps = "".join(
        f"""step {{ model_name: "{model}" model_version: -1
            input_map {{ key: "x" value: "{tensors[index]}" }}
            output_map {{ key: "y" value: "{tensors[index + 1]}" }} }}"""
        for index, model in enumerate(models)
    )
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    path = repository / name / "config.pbtxt"
    path.write_text(
        f"""platform: "ensemble" max_batch_size: 4
        input {{ name: "x" data_type: TYPE_FP32 dims: 4 }}
        output {{ name: "y" data_type: TYPE_FP32 dims: 4 }}
        ensemble_scheduling {{ {steps} }}"""
    )
    return path

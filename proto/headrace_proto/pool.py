"""The private descriptor pool that holds every message of ours.

Other packages bring messages of the same package ``inference`` (tritonclient, kserve) and put
them into protobuf's default pool, which refuses a second definition of a name. A pool of our own
keeps all of them importable in one process, in any order; on the wire there is no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from headrace_proto.v1.descriptor_set_pb2 import FILE_DESCRIPTOR_SET

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message


def _load(serialized_set: bytes) -> DescriptorPool:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(serialized_set).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _load(FILE_DESCRIPTOR_SET)


def build_classes(file: FileDescriptor, module: str) -> dict[str, object]:
    """Build what a generated module exports: message classes, enums and enum values, by name.

    Args:
        file: A file of `POOL`.
        module: The module that will hold them; classes carry its name.
    """
    exports: dict[str, object] = {}
    for name, descriptor in file.message_types_by_name.items():
        exports[name] = _message_class(descriptor, module, name)
    for name, enum in file.enum_types_by_name.items():
        exports[name] = EnumTypeWrapper(enum)
        exports.update({value.name: value.number for value in enum.values})
    return exports


def _message_class(descriptor: Descriptor, module: str, qualname: str) -> type[Message]:
    message = message_factory.GetMessageClass(descriptor)
    message.__module__ = module
    message.__qualname__ = qualname
    for name, nested in descriptor.nested_types_by_name.items():
        # upb finds nested classes by itself; protobuf in pure Python must be given them.
        setattr(message, name, _message_class(nested, module, f"{qualname}.{name}"))
    return message

"""The command ``headrace-client bench``: from options to a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import grpc
from google.protobuf.message import DecodeError

from headrace_client.bench import report_html, report_json, report_text
from headrace_client.bench.conduct import Conductor, Interrupts, Outcome
from headrace_client.bench.fleet import Fleet
from headrace_client.bench.inputs import InputOptions, Requests, requests, tails
from headrace_client.bench.level import Job, Messages
from headrace_client.bench.plan import (
    PlannedLevel,
    levels,
    num_connections,
    num_processes,
)
from headrace_client.bench.progress import Progress
from headrace_client.bench.report import Report, Subject, circumstances
from headrace_client.bench.server_side import statistics
from headrace_client.bench.usage import UsageError
from headrace_client.bench.worker import INFER
from headrace_client.errors import HeadraceClientError, InvalidInput, call_failed
from headrace_client.settings import Settings
from headrace_client.sync import Client
from headrace_proto.v1 import inference_pb2 as pb

# Errors that say the same about every request, so that there is no use in sending more.
_HOPELESS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
_LOCAL = ("localhost", "127.", "[::1]", "unix:")


def run(client: Client, settings: Settings, arguments: argparse.Namespace) -> int:
    """Run what the options ask for, and report; returns the exit code.

    Raises:
        UsageError: The options do not go together.
        HeadraceClientError: No server, no such model, or an input that does not fit.
    """
    planned = levels(arguments)
    for path in (arguments.json_file, arguments.html):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}")
    made = _requests(client, arguments)
    try_once(settings, made.messages)
    deadline_s = None if arguments.deadline_ms is None else arguments.deadline_ms / 1e3
    processes = num_processes(planned, arguments.processes)
    job = Job(
        settings,
        made.messages,
        deadline_s or settings.deadline_s(None),
        num_connections(planned, processes, arguments.connections),
        index=0,
        num_workers=processes,
    )
    subject = _subject(client, arguments, made, job)
    started = circumstances()
    interrupts = Interrupts()
    with interrupts.caught(), Fleet(job) as fleet:
        conductor = Conductor(
            fleet,
            lambda: statistics(client, subject.model, subject.model_version),
            Progress(None if arguments.quiet else sys.stderr),
            interrupts,
            deadline_s,
            arguments.sources,
            flooding=None if arguments.flood is None else arguments.flood.source,
            rows=made.rows,
            is_local=subject.url.startswith(_LOCAL),
        )
        outcomes = list(_outcomes(conductor, planned))
    report = Report(subject, started, outcomes)
    _publish(report, arguments)
    return 1 if report.is_failure else 0


def _publish(report: Report, arguments: argparse.Namespace) -> None:
    shown = report_json.text(report) if arguments.json else report_text.text(report)
    sys.stdout.write(f"{shown}\n")
    for path, write in (
        (arguments.json_file, report_json.text),
        (arguments.html, report_html.text),
    ):
        if path is not None:
            try:
                path.write_text(write(report), "utf-8")
            except OSError as error:
                raise InvalidInput(f"cannot write {path}: {error.strerror}") from error


def _outcomes(conductor: Conductor, planned: Sequence[PlannedLevel]) -> Iterator[Outcome]:
    for each in planned:
        yield conductor.run(each)
        if conductor.interrupts.count:
            return


def _requests(client: Client, arguments: argparse.Namespace) -> Requests:
    if arguments.message is not None:
        return _given_request(arguments)
    name = arguments.model or arguments.model_name
    if not name:
        raise UsageError("say which model, as in: headrace-client bench MODEL")
    metadata = client.model_metadata(name, arguments.model_version)
    options = InputOptions(
        given=arguments.input,
        data=arguments.data,
        shapes=dict(arguments.shape),
        rows=arguments.batch_size,
        outputs=arguments.output,
        parameters=dict(arguments.parameter),
        seed=arguments.seed,
    )
    return requests(metadata, arguments.model_version, options, arguments.sources)


def _given_request(arguments: argparse.Namespace) -> Requests:
    try:
        base = arguments.message.read_bytes()
        message = pb.ModelInferRequest.FromString(base)
    except (OSError, DecodeError) as error:
        raise UsageError(f"--message {arguments.message}: {error}") from error
    parameters = tails(dict(arguments.parameter), arguments.sources)
    shapes = [f"{each.name} {each.datatype}{list(each.shape)}" for each in message.inputs]
    messages = Messages(base, parameters)
    rows = arguments.batch_size or 1
    return Requests(message.model_name, message.model_version, messages, rows, shapes)


def try_once(settings: Settings, messages: Messages) -> None:
    """Send one request, so that a mistake in it is told at once.

    Raises:
        CallFailed: No request like this one can be answered.
    """
    options = [*settings.options(), ("grpc.use_local_subchannel_pool", 1)]
    if settings.tls is None:
        channel = grpc.insecure_channel(settings.url, options)
    else:
        channel = grpc.secure_channel(settings.url, settings.tls.credentials(), options)
    with channel:
        try:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(INFER)
            call(
                messages.base + messages.tails[0],
                timeout=settings.deadline_s(None),
                metadata=settings.metadata,
            )
        except grpc.RpcError as error:
            if error.code() in _HOPELESS:
                raise call_failed(error, is_inference=True) from error


def _subject(client: Client, arguments: argparse.Namespace, made: Requests, job: Job) -> Subject:
    try:
        metadata = client.server_metadata()
        server = f"{metadata.name} {metadata.version}"
    except HeadraceClientError:  # its name is all that is wanted
        server = ""
    flood = arguments.flood
    return Subject(
        url=arguments.url,
        server=server,
        model=made.model,
        model_version=made.version,
        inputs=made.shapes,
        rows=made.rows,
        request_bytes=len(made.messages.base) + len(made.messages.tails[0]),
        deadline_ms=arguments.deadline_ms,
        num_sources=arguments.sources,
        flood="" if flood is None else f"{flood.source}:{flood.factor:g}",
        seed=arguments.seed,
        num_processes=job.num_workers,
        num_connections=job.num_workers * job.num_connections,
    )

"""The command ``headrace-client``: ask a server how it is, what it serves, and for an answer."""

from __future__ import annotations

import argparse
import base64
import os
import sys
from collections.abc import Callable, Sequence

import grpc

from headrace_client import printing
from headrace_client.arguments import read_files, read_inputs, read_text
from headrace_client.bench.options import add_options as add_bench_options
from headrace_client.calls import HealthStatus
from headrace_client.errors import CallFailed, HeadraceClientError
from headrace_client.settings import Settings, Tls
from headrace_client.sync import Client

DEFAULT_URL = "localhost:8001"
LOAD_S = 600.0  # a load takes as long as it takes
Command = Callable[[Client, argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 when the answer is no or an error, 2 for bad usage."""
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    try:
        settings = _settings(arguments)
        with Client(
            settings.url,
            timeout_s=settings.timeout_s,
            tls=settings.tls,
            metadata=settings.metadata,
        ) as client:
            return command(client, arguments)
    except HeadraceClientError as error:
        print(f"headrace-client: {arguments.url}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # as shells report it


def infer(client: Client, arguments: argparse.Namespace) -> int:
    """Run a model on inputs given as JSON or .npy files."""
    metadata = client.model_metadata(arguments.model, arguments.model_version)
    result = client.infer_full(
        arguments.model,
        read_inputs(arguments.input, metadata),
        outputs=arguments.output,
        version=arguments.model_version,
    )
    print(printing.result_json(result) if arguments.json else printing.result_table(result))
    return 0


def health(client: Client, arguments: argparse.Namespace) -> int:
    """Print the state of the server or of one model; 0 when it serves, else 1."""
    try:
        status = client.health(arguments.model)
    except CallFailed as error:
        if error.code is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        # Not every server of the protocol has the standard service.
        is_ready = client.is_model_ready(arguments.model) if arguments.model else client.is_ready()
        status = HealthStatus.SERVING if is_ready else HealthStatus.NOT_SERVING
    print(status.name)
    return 0 if status is HealthStatus.SERVING else 1


def models(client: Client, arguments: argparse.Namespace) -> int:
    """List the models of the repository and their states."""
    index = client.repository_index()
    if arguments.json:
        print(printing.message_json(index))
    else:
        rows = [(each.name, each.version, each.state, each.reason) for each in index]
        print(printing.table(("MODEL", "VERSION", "STATE", "REASON"), rows))
    return 0


def load(client: Client, arguments: argparse.Namespace) -> int:
    """Load a model, or load it anew where it has changed."""
    config = None if arguments.config is None else read_text(arguments.config)
    client.load_model(arguments.model, config=config, files=read_files(arguments.file))
    print(f"{arguments.model} is loaded")
    return 0


def unload(client: Client, arguments: argparse.Namespace) -> int:
    """Stop serving a model; what it has taken is answered."""
    client.unload_model(arguments.model)
    print(f"{arguments.model} is unloaded")
    return 0


def metadata(client: Client, arguments: argparse.Namespace) -> int:
    """Describe the server, or the inputs and outputs of a model."""
    if arguments.model:
        model = client.model_metadata(arguments.model, arguments.model_version)
        print(printing.message_json(model) if arguments.json else printing.metadata_text(model))
        return 0
    server = client.server_metadata()
    if arguments.json:
        print(printing.message_json(server))
    else:
        print(f"{server.name} {server.version}\nextensions: {', '.join(server.extensions)}")
    return 0


def bench(client: Client, arguments: argparse.Namespace) -> int:
    """Put load on a model, in a closed or an open loop, and report what came of it."""
    from headrace_client.bench.command import run
    from headrace_client.bench.usage import UsageError

    try:
        return run(client, _settings(arguments), arguments)
    except UsageError as error:
        return int(arguments.fail(str(error)))  # exits with 2


def _settings(arguments: argparse.Namespace) -> Settings:
    files = (arguments.root_cert, arguments.client_cert, arguments.client_key)
    tls = Tls(*files) if arguments.tls or any(files) else None
    return Settings(arguments.url, arguments.timeout, tls, metadata=tuple(arguments.header))


def _header(text: str) -> tuple[str, str | bytes]:
    key, colon, value = (part.strip() for part in text.partition(":"))
    if not key or not colon:
        raise argparse.ArgumentTypeError(f"{text!r}; expected KEY:VALUE")
    if not key.endswith("-bin"):
        return key, value
    try:
        return key, base64.b64decode(value, validate=True)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; keys in -bin take base64") from None


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-u",
        "--url",
        default=os.environ.get("HEADRACE_URL", DEFAULT_URL),
        metavar="HOST:PORT",
        help=f"the server (default: $HEADRACE_URL, else {DEFAULT_URL})",
    )
    common.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds for each call (default 10)",
    )
    common.add_argument(
        *("-H", "--header"),
        type=_header,
        action="append",
        default=[],
        metavar="KEY:VALUE",
        help="metadata of every call, such as authorization:Bearer…; repeatable",
    )
    common.add_argument("--tls", action="store_true", help="encrypt the connection")
    common.add_argument("--root-cert", metavar="PEM", help="authorities to trust; implies --tls")
    common.add_argument("--client-cert", metavar="PEM", help="own certificate, for mutual TLS")
    common.add_argument("--client-key", metavar="PEM", help="key of --client-cert")
    return common


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace-client",
        description="Ask a server of the Open Inference Protocol for answers.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = _common()

    def add(command: Command, model: str, *, with_version: bool = True) -> argparse.ArgumentParser:
        text = (command.__doc__ or "").rstrip(".")
        one = commands.add_parser(
            command.__name__, parents=[common], help=text[0].lower() + text[1:], description=text
        )
        if model:
            one.add_argument("model", nargs=None if model == "required" else "?", default="")
        if with_version:
            one.add_argument("--model-version", default="", metavar="N", help="default: newest")
        one.set_defaults(command=command)
        return one

    asking = add(infer, "required")
    _add_infer_options(asking)
    add(health, "optional", with_version=False)
    _add_load_options(add(load, "required", with_version=False))
    add(unload, "required", with_version=False)
    putting = add(bench, "", with_version=False)
    add_bench_options(putting)
    putting.set_defaults(fail=putting.error)
    for one in (asking, add(models, "", with_version=False), add(metadata, "optional")):
        one.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_infer_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="JSON, as in x=[[1,2]], or a numpy file, as in x=@x.npy; one for each input",
    )
    parser.add_argument(
        "-o", "--output", action="append", metavar="NAME", help="only this output; repeatable"
    )


def _add_load_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(timeout=LOAD_S)
    parser.epilog = f"Waits {LOAD_S:g} s unless --timeout says otherwise."
    parser.add_argument(
        "--config", metavar="FILE", help="configuration in JSON, in place of the written one"
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="VERSION/NAME=FILE",
        help="model file to send, in place of the server's; wants --config; repeatable",
    )


if __name__ == "__main__":
    sys.exit(main())

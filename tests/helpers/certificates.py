"""An authority and PEM files of it, for tests of TLS."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import grpc
import trustme


class Certificates:
    """An authority, and PEM files of it in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.root = self._write("root", self.authority.cert_pem)
        self.server_chain, self.server_key = self.issue("server", "localhost", "127.0.0.1")
        self.client_chain, self.client_key = self.issue("client", "someone")

    def issue(
        self, name: str, *identities: str, expires: datetime | None = None
    ) -> tuple[Path, Path]:
        """The files of a new certificate and its key."""
        issued = self.authority.issue_cert(*identities, not_after=expires)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return self._pem(f"{name}-chain", chain), self._write(f"{name}-key", issued.private_key_pem)

    def credentials(self, *, with_client: bool) -> grpc.ChannelCredentials:
        """A client's, who trusts the authority."""
        key, chain = self.client_key.read_bytes(), self.client_chain.read_bytes()
        return grpc.ssl_channel_credentials(
            self.root.read_bytes(), *((key, chain) if with_client else ())
        )

    def _write(self, name: str, blob: trustme.Blob) -> Path:
        return self._pem(name, blob.bytes())

    def _pem(self, name: str, data: bytes) -> Path:
        path = self.folder / f"{name}.pem"
        path.write_bytes(data)
        return path


class MountedSecret:
    """A folder as Kubernetes mounts a Secret: links to `..data`, itself a link that is swapped."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder = folder
        self._num_versions = 0
        self.swap(files)
        for name in files:
            (folder / name).symlink_to(Path("..data", name))

    def path(self, name: str) -> Path:
        """Where a user of the secret reads a file."""
        return self.folder / name

    def swap(self, files: dict[str, bytes]) -> None:
        """Put new files in place of all old ones, in one step."""
        self._num_versions += 1
        version = self.folder / f"..version_{self._num_versions}"
        version.mkdir()
        for name, data in files.items():
            (version / name).write_bytes(data)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")  # noqa: PTH105 -- as the kubelet does it


def tls_flags(certificates: Certificates, switch: str = "--grpc-use-ssl") -> list[str | Path]:
    """Flags of a server with these files."""
    return [
        switch,
        "--grpc-server-cert",
        certificates.server_chain,
        "--grpc-server-key",
        certificates.server_key,
    ]

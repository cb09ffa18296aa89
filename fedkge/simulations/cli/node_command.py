"""`fedkge node`: a client's machine in a federation over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["start_node"]


def start_node(
    client: Annotated[int, typer.Option(min=0, help="Which client this is: its line of the roster, from 0.")],
    data: Annotated[Path, typer.Option(help="Its triples: a folder or file on this machine.")],
    state: Annotated[Path, typer.Option(help="A folder for what it must remember; keep it.")],
    keys: Annotated[
        Path | None, typer.Option(help="The folder of its identity.key and the roster.txt beside it.")
    ] = None,
    superlink: Annotated[str, typer.Option(help="Where the server is.")] = "localhost:8000",
    root_certificates: Annotated[
        Path | None, typer.Option(help="The authority that vouches for the server.")
    ] = None,
    auth_supernode_private_key: Annotated[
        Path | None, typer.Option(help="The key by which the server knows this node.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="No TLS, on one machine.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --insecure: to other machines too.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="For this machine's own programs.")] = 9094,
) -> None:
    """Take part as a client, with the code that is installed here and no other."""
    from fedkge.client.node import Node, start  # takes a while to import

    node = Node(
        superlink, client, data, state, keys, root_certificates, auth_supernode_private_key, insecure, port
    )
    node.check(anywhere=force)
    start(node)

"""Connecting to a Ray cluster without waiting for what is not there, and without its noise."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from actiongap._system import install
from actiongap.lab.work import sentence

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first; a Ray head answers with a frame of the same kind, 4, as its fourth byte."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[tuple[Any, str]]:
    """Ray, connected to a cluster and quiet about it, and where the head of the cluster is."""
    if address.startswith("ray://"):
        raise ValueError(f"{address}: streams do not work through Ray's client; go to a machine of the cluster and say auto or HOST:PORT")
    # Ray reads these when it is imported: no reports to its makers, no advice about its future.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    try:
        import ray
        from ray._private import services, worker
    except ImportError:
        raise ValueError(f"a cluster needs Ray, which is not installed: {install('cluster')}") from None
    if ray.is_initialized():
        raise ValueError("this process is connected to a Ray cluster already: call ray.shutdown() first")
    try:
        head = services.canonicalize_bootstrap_address_or_die(address)
    except (ConnectionError, ValueError):
        raise ValueError(
            f"no Ray cluster is found by {address!r}: start one with ray start --head, or give HOST:PORT of its head"
        ) from None
    # Ray itself would go on trying for minutes.
    if not answers(head):
        raise ValueError(f"no Ray cluster answers at {head}: start one with ray start --head --port {head.rpartition(':')[2]}")
    # What Ray has to say about nodes that died would land in the middle of the standard output.
    worker._worker_logs_enabled = False
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(address=head, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # of many kinds: other versions of Ray or Python, no node on this machine
            raise ValueError(f"no connection to the Ray cluster at {head}: {sentence(error)}") from None
        # Ray's own way to be terminated prints its stack.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
        yield ray, head
    finally:
        ray.shutdown()


def answers(head: str, timeout: float = 5.0) -> bool:
    """Whether something that could be a Ray head listens at HOST:PORT.

    Examples
    --------
    >>> answers("127.0.0.1:1")
    False
    """
    host, _, port = head.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return True
            connection.sendall(GREETING)
            return connection.recv(9)[3:4] == b"\x04"
    except OSError:
        return False

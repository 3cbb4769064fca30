"""Clients that ask without a pause until standard input ends, and count what became of requests.

Prints one line of JSON. Half of the clients keep their connections; the others open one for each
request. A request is lost if its response does not come, is another one, or is cut. A connection
that the server closes while nothing is asked is no loss.
"""

import collections
import json
import select
import socket
import sys
import threading
import time

CLIENTS = 16
TIMEOUT = 20.0


def connected(address):
    """`address` is a host and a port, or the path of a Unix socket."""
    if isinstance(address, tuple):
        return socket.create_connection(address, TIMEOUT)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT)
    connection.connect(address)
    return connection


def responds(connection, request, body):
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += some(connection)
    head, _, rest = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(rest) < int(fields[b"content-length"]):
        rest += some(connection)
    if not head.startswith(b"HTTP/1.1 200 ") or rest != body:
        raise ValueError(f"wrong: {head.splitlines()[0].decode()} {rest[:40]!r}")
    return fields.get(b"connection") != b"close"


def some(connection):
    received = connection.recv(1 << 20)
    if not received:
        raise EOFError("closed in place of a response")
    return received


def is_closed(connection):
    # Readable while nothing was asked: it has ended.
    return bool(select.select([connection], [], [], 0)[0])


class Client(threading.Thread):
    def __init__(self, address, body, keeps, over):
        super().__init__()
        self.address, self.body, self.keeps, self.over = address, body, keeps, over
        self.has_begun = threading.Event()
        self.counts = collections.Counter()
        self.losses = []

    def run(self):
        close = "" if self.keeps else "connection: close\r\n"
        head = f"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {len(self.body)}\r\n{close}\r\n"
        request = head.encode() + self.body
        connection = None
        is_last = False
        while not is_last:
            # One request more: what was done just before the end counts too.
            is_last = self.over.is_set()
            if connection and is_closed(connection):
                self.counts["closed"] += 1
                connection = None
            self.counts["requests"] += 1
            try:
                connection = connection or connected(self.address)
                if not responds(connection, request, self.body) and self.keeps:
                    self.counts["closed"] += 1
                    connection = None
            except (OSError, EOFError, ValueError, KeyError) as error:
                self.losses.append(f"{time.time():.3f} {type(error).__name__}: {error}")
                connection = None
            connection = connection if self.keeps else None
            self.has_begun.set()


def main():
    host, port, length = sys.argv[1:]
    address = port if port.startswith("/") else (host, int(port))
    over = threading.Event()
    # An echo: each client has bytes of its own.
    bodies = [bytes([97 + number]) * int(length) for number in range(CLIENTS)]
    clients = [
        Client(address, body, number % 2 == 0, over) for number, body in enumerate(bodies)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.has_begun.wait()
    print("started", flush=True)
    sys.stdin.read()
    over.set()
    for client in clients:
        client.join()
    counts = sum((client.counts for client in clients), collections.Counter())
    losses = sorted(loss for client in clients for loss in client.losses)
    print(json.dumps({**counts, "failed": len(losses), "losses": losses[:20]}), flush=True)


main()

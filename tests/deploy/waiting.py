"""Connections that have sent a request while nobody accepts. Prints how many get their response."""

import socket
import sys

port, count = map(int, sys.argv[1:])
connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
for number, connection in enumerate(connections):
    head = b"POST / HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
    connection.sendall(head + b"%04d" % number)
print("sent", flush=True)


def whole(connection):
    received = b""
    while more := connection.recv(4096):
        received += more
    return received


responses = [whole(connection) for connection in connections]
print(sum(it.endswith(b"\r\n\r\n%04d" % number) for number, it in enumerate(responses)))

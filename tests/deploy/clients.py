"""The load, as a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("load.py")


class Load:
    def __init__(self, port, length=13, network=lambda *command: list(map(str, command))):
        command = network(sys.executable, PROGRAM, "127.0.0.1", port, length)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # Each client has asked once.
        assert self.process.stdout.readline() == "started\n"

    def finish(self):
        """What became of the requests."""
        told, _ = self.process.communicate()
        return json.loads(told)


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")

"""The load, as a process of its own."""

import json
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("load.py")


class Load:
    def __init__(self, port, length=13, network=lambda *command: list(map(str, command))):
        command = network(sys.executable, PROGRAM, "127.0.0.1", port, length)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "started\n"
        time.sleep(0.3)  # some requests before

    def finish(self):
        """What became of the requests."""
        time.sleep(0.3)  # and some after
        told, _ = self.process.communicate()
        return json.loads(told)


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")

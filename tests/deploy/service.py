"""What is done to the service, under a load that counts every request."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from clients import Load

UNIT = "prefork-server.service"
PORT = 8080
WAITING = Path(__file__).with_name("waiting.py")


class Service:
    def __init__(self, machine):
        self.machine = machine
        self.rows = []
        self.load = None

    # What there is to see.

    def show(self, name):
        return self.machine.run("systemctl", "show", "--value", "--property", name, UNIT)

    def master(self):
        return int(self.show("MainPID"))

    def status(self):
        # Not by the binary, which may be another one by now.
        socket = f"/run/prefork-server/{self.master()}.sock"
        told = self.machine.try_run("curl", "-sS", "--unix-socket", socket, "http://admin/status")
        return json.loads(told.stdout) if told.returncode == 0 else None

    def workers(self):
        """The process ids of the workers that serve, as the system sees them."""
        status = self.status() or {"slots": []}
        return sorted(
            worker["pid"]
            for slot in status["slots"]
            for worker in slot["workers"]
            if worker["state"] == "serving"
        )

    def is_complete(self, without=()):
        """Whether all slots are served, and by none of these workers."""
        workers = self.workers()
        return len(workers) == 2 and not set(workers) & set(without) and workers

    def signal(self, pid, number):
        os.kill(self.machine.host_pid(pid), number)

    # What is done.

    def write(self, path, text):
        path = self.machine.path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def configure(self, **drop_in):
        lines = "".join(f"{name}={value}\n" for name, value in drop_in.items())
        self.write(f"/run/systemd/system/{UNIT}.d/test.conf", f"[Service]\n{lines}")
        self.machine.run("systemctl", "daemon-reload")

    def case(self, name, deed, load=Load, length=13, port=PORT, allowed=lambda failed: failed == 0):
        """Does it under load, and notes what became of the requests and in which states it was."""
        begun = time.time()
        self.machine.run("journalctl", "--sync")
        self.load = load(port, length, self.machine.network) if load else None
        before = time.monotonic()
        note = deed(self) or ""
        took = time.monotonic() - before
        counts = self.load.finish() if self.load else {"requests": 0, "failed": 0, "closed": 0}
        states = self.states(begun)
        row = [name, counts["requests"], counts["failed"], counts.get("closed", 0), f"{took:.1f} s"]
        self.rows.append([*map(str, row), f"{note}; {states}".strip("; ")])
        print(" | ".join(self.rows[-1]), flush=True)
        if not allowed(counts["failed"]):
            journal = self.machine.run(
                "journalctl", "-u", UNIT, "--since", f"@{begun:.3f}", "-o", "short-precise"
            )
            sys.exit(f"{name}: {counts['failed']} failed\n{counts['losses']}\n{journal}")

    def states(self, since):
        """The states that systemd has logged: `start -> running` and so on."""
        self.machine.run("journalctl", "--sync")
        log = self.machine.run(
            "journalctl", "-q", "-u", UNIT, "--since", f"@{since:.3f}", "-o", "cat"
        )
        changes = re.findall(r"Changed (\S+) -> (\S+)", log)
        if not 0 < len(changes) < 12:
            return ""  # none, or of several deeds
        return " -> ".join([changes[0][0], *(to for _, to in changes)])

    def waiting(self, count):
        """Connections that have sent a request and are not accepted: all processes are stopped."""
        command = self.machine.network(sys.executable, WAITING, PORT, count)
        clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert clients.stdout.readline() == "sent\n"
        return clients

"""A Debian system in a container, with systemd as its first process. Nothing of it is left."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

NEEDS = ["debootstrap", "systemd-nspawn", "nsenter", "dpkg-deb", "h2load", "openssl"]
SUITE = "trixie"
PACKAGES = "curl,dbus,procps,systemd,systemd-sysv"
LANDLOCK = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
LIMIT = 60.0  # seconds for anything that is waited for


def until(what, fact):
    """Waits for a fact and returns it. Looks again every 20 ms."""
    end = time.monotonic() + LIMIT
    while not (found := fact()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT:.0f} s: {what}")
        time.sleep(0.02)
    return found


def missing():
    """What this test needs and this machine has not."""
    programs = [name for name in NEEDS if not shutil.which(name)]
    return programs if os.geteuid() == 0 else ["root", *programs]


def system(folder):
    """The root file system, made once by debootstrap(8)."""
    root = folder / SUITE
    if not root.exists():
        print(f"debootstrap: {SUITE} into {root}", flush=True)
        unfinished = folder / f"{SUITE}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        run = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, unfinished]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(root)
    return root


class Machine:
    def __init__(self, root):
        self.log = open(root.parent / "machine.log", "w+")
        # The system sees changes of its own in an overlay, which is gone when it ends.
        command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"]
        command += ["--volatile=overlay", "--private-network", "--console=pipe", "-D", root]
        # Older versions of the container's own filter of system calls do not know Landlock.
        command += ["--system-call-filter=" + " ".join(LANDLOCK)]
        # systemd of this suite knows only the unified hierarchy.
        environment = {**os.environ, "UNIFIED_CGROUP_HIERARCHY": "1"}
        self.container = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        try:
            self.leader = until("a first process", self.first_process)
            until("the system runs", self.is_running)
        except BaseException:
            self.container.kill()
            raise

    def first_process(self):
        children = Path(f"/proc/{self.container.pid}/task/{self.container.pid}/children")
        for pid in children.read_text().split():
            names = Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0]
            if names.split()[1:] == ["1"]:
                return pid
        return None

    def is_running(self):
        state = self.try_run("systemctl", "is-system-running").stdout.strip()
        return state in ("running", "degraded")

    def command(self, *command):
        """A command that runs in the system."""
        return ["nsenter", "-t", self.leader, *"-m -u -i -n -p -r -w".split(), *map(str, command)]

    def network(self, *command):
        """A command of this machine that has the system's network."""
        return ["nsenter", "-t", self.leader, "-n", *map(str, command)]

    def try_run(self, *command):
        path = {
            "PATH": "/usr/sbin:/usr/bin",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return subprocess.run(self.command(*command), env=path, text=True, capture_output=True)

    def run(self, *command):
        """The output of a command that must succeed."""
        done = self.try_run(*command)
        if done.returncode != 0:
            sys.exit(
                f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout.strip()

    def path(self, path):
        """A path of the system, as this process sees it."""
        return Path(f"/proc/{self.leader}/root{path}")

    def host_pid(self, pid):
        """The process that has this id in the system."""
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                names = status.read_text().split("NSpid:")[1].splitlines()[0].split()
            except (OSError, IndexError):
                continue
            namespace = os.readlink(f"/proc/{self.leader}/ns/pid")
            if names[1:] == [str(pid)] and os.readlink(status.parent / "ns/pid") == namespace:
                return int(status.parent.name)
        raise ProcessLookupError(pid)

    def end(self):
        self.try_run("systemctl", "poweroff", "--force")
        try:
            self.container.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.container.kill()
            self.container.wait()

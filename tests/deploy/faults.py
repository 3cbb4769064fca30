"""What happens to the service."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import time
from pathlib import Path

from machine import LIMIT, until
from operations import CONFIGURATION, restart

# The hierarchy with the memory controller, of either version of cgroups(7).
HIERARCHIES = map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"))
MEMORY = next((path for path in HIERARCHIES if (path / "cgroup.procs").exists()), None)
LISTENS = (socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def in_progress(lost):
    """What a killed process takes with it: at most a request of each client."""
    return lost <= 16


def worker_killed(service):
    old = service.workers()
    service.signal(old[0], signal.SIGKILL)
    until("another worker", lambda: service.is_complete(without=old[:1]))


def worker_without_memory(service):
    master, old = service.master(), service.workers()
    with limited(service.machine.host_pid(old[0])) as is_killed:
        until("the kernel has killed it", is_killed)
        until("another worker", lambda: service.is_complete(without=old[:1]))
    assert service.master() == master and old[1] in service.workers()


@contextlib.contextmanager
def limited(pid):
    """A process gets no more memory than it has. Gives a function that says whether the kernel has
    killed it for that."""
    group = MEMORY / "prefork-server-test"
    group.mkdir(exist_ok=True)
    first, second = ("memory.limit_in_bytes", "memory.oom_control"), ("memory.max", "memory.events")
    limit, events = next(names for names in (first, second) if (group / names[0]).exists())
    try:
        (group / limit).write_text("0")
        (group / "cgroup.procs").write_text(str(pid))
        yield lambda: re.search(r"(?m)^oom_kill [1-9]", (group / events).read_text())
    finally:
        until("nobody is in it", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def listener_shut_down(service):
    """By a worker, while the master stands still. systemd keeps it; the master opens it again."""
    master, old = service.master(), service.workers()
    service.signal(master, signal.SIGSTOP)
    shut_down(service.machine.host_pid(old[0]))
    # systemd has seen it before it responds.
    kept = service.show("NFileDescriptorStore")
    service.signal(master, signal.SIGCONT)
    until("it listens again", lambda: service.status()["history"]["listeners_reopened"])
    assert kept == service.show("NFileDescriptorStore") == "2", kept
    return master_killed(service)


def shut_down(pid):
    """shutdown(2) of a process's first listener, as if by the process itself."""
    process, number = os.pidfd_open(pid), 438  # pidfd_getfd(2)
    for fd in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
        with contextlib.suppress(OSError, ValueError):
            copy = socket.socket(fileno=ctypes.CDLL(None).syscall(number, process, fd, 0))
            if copy.family == socket.AF_INET and copy.getsockopt(*LISTENS):
                copy.shutdown(socket.SHUT_RDWR)
                break
    else:
        raise LookupError(f"{pid} has no listener")
    os.close(process)


def master_killed(service):
    """All are stopped first, so that the connections wait in the queue."""
    master = service.master()
    for pid in [master, *service.workers()]:
        service.signal(pid, signal.SIGSTOP)
    waiting = service.waiting(50)
    service.signal(master, signal.SIGKILL)
    told, _ = waiting.communicate(timeout=LIMIT)
    assert told == "50\n", told
    assert service.master() not in (0, master)
    return "50 of 50 waiting connections answered by the next master"


def master_stopped(service):
    master = service.master()
    service.signal(master, signal.SIGSTOP)
    until("another master", lambda: service.master() not in (0, master))
    until("its workers", service.is_complete)
    return f"NRestarts is {service.show('NRestarts')}"


def journal_stopped(service):
    """The log goes to the journal, a line for each request, and nobody reads it."""
    master = service.master()
    show = ["systemctl", "show", "--value", "--property", "MainPID", "systemd-journald"]
    journal = int(service.machine.run(*show))
    service.signal(journal, signal.SIGSTOP)
    try:
        time.sleep(5)
    finally:
        service.signal(journal, signal.SIGCONT)
    assert service.master() == master
    return "5 s without a reader; the master stays"


def all_of(service):
    service.case("a worker killed", worker_killed, allowed=in_progress)
    if MEMORY:
        name, length = "a worker without memory", 1 << 20
        service.case(name, worker_without_memory, length=length, allowed=in_progress)
    else:
        print("a worker without memory: skipped, there is no memory controller")
    service.case("master killed", master_killed, load=None)
    until("all workers", service.is_complete)
    service.case("a listener shut down, master killed", listener_shut_down, load=None)
    until("all workers", service.is_complete)
    service.configure(WatchdogSec="3s", TimeoutAbortSec="2s")
    restart(service)
    service.case("master stopped: watchdog", master_stopped, allowed=in_progress)
    service.write("/etc/prefork-server.toml", CONFIGURATION + 'access-log = "-"\n')
    restart(service)
    service.case("journald stopped", journal_stopped)

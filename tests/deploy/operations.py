"""What operators do to the service."""

import contextlib
import shutil

from machine import until
from service import PORT, UNIT

BINARY = "/usr/bin/prefork-server"
SOCKET = "prefork-server.socket"
RELOAD = f"{BINARY} reload --wait --admin unix:${{RUNTIME_DIRECTORY}}/${{MAINPID}}.sock"
TEMPLATE = ["-e", "s|prefork-server.toml|prefork-server/%i.toml|"]
TEMPLATE += ["-e", "s|Directory=prefork-server|&-%i|"]
CONFIGURATION = f"""
listen = ["127.0.0.1:{PORT}"]
workers = 2
echo = true
drain-timeout = "30s"
"""


def times(count, deed, service):
    for _ in range(count):
        deed(service)


def start(service):
    service.machine.run("systemctl", "stop", UNIT)
    service.machine.run("systemctl", "start", UNIT)


def reload(service):
    old = service.workers()
    service.machine.run("systemctl", "reload", UNIT)
    until("other workers", lambda: service.is_complete(without=old))


def reload_of_nonsense(service):
    old = service.workers()
    service.write("/etc/prefork-server.toml", "nonsense = 1")
    service.machine.try_run("systemctl", "reload", UNIT)
    service.write("/etc/prefork-server.toml", CONFIGURATION)
    assert service.workers() == old
    return "the old workers serve: " + service.show("StatusText")


def reload_by_verb(service):
    """With the drop-in of examples/deploy, `systemctl reload` fails if the reload is abandoned."""
    service.configure(Type="notify", ExecReload=RELOAD)
    reload(service)
    old = service.workers()
    service.write("/etc/prefork-server.toml", "nonsense = 1")
    told = service.machine.try_run("systemctl", "reload", UNIT)
    service.write("/etc/prefork-server.toml", CONFIGURATION)
    assert told.returncode == 1 and service.workers() == old, told
    said = service.machine.try_run("systemctl", "status", UNIT).stdout
    assert "was abandoned: nonsense in /etc/prefork-server.toml" in said, said
    service.configure()
    return "it fails, and the old workers serve"


def restart(service):
    old = service.master()
    service.machine.run("systemctl", "restart", UNIT)
    assert service.master() != old


def restart_elsewhere(service):
    """On all addresses, then on one again: systemd still has the listeners of the others."""
    for host in ("0.0.0.0", "127.0.0.1"):
        text = CONFIGURATION.replace("127.0.0.1", host)
        service.write("/etc/prefork-server.toml", text)
        restart(service)


def signals_to_all(service):
    """systemctl sends them to the workers too."""
    master = service.master()
    for name in ("USR1", "HUP", "USR2"):
        old = service.workers()
        service.machine.run("systemctl", "kill", "--signal", name, UNIT)
        if name != "USR1":
            until("other workers", lambda: service.is_complete(without=old))
    assert service.master() == master
    return "USR1, HUP, USR2 to all processes"


def upgrade(service):
    master, old = service.master(), service.workers()
    new = service.machine.path(f"{BINARY}.new")
    shutil.copy2(service.machine.path(BINARY), new)
    new.rename(new.with_suffix(""))
    service.machine.run("kill", "-USR2", master)
    until("other workers", lambda: service.is_complete(without=old))
    assert service.master() == master, "the main process stays"


def upgrade_to_false(service):
    run = service.machine.run
    master, old = service.master(), service.workers()
    run("cp", "--preserve", BINARY, f"{BINARY}.kept")
    run("cp", "--remove-destination", "/bin/false", BINARY)
    run("kill", "-USR2", master)
    until("a reason", lambda: "upgrade" in service.show("StatusText"))
    run("mv", f"{BINARY}.kept", BINARY)
    assert (service.master(), service.workers()) == (master, old)
    return service.show("StatusText")


def all_of(service):
    service.write("/etc/prefork-server.toml", CONFIGURATION)
    # More starts than systemd lets a user ask for; and it logs each change of state.
    service.write(f"/run/systemd/system/{UNIT}.d/limit.conf", "[Unit]\nStartLimitIntervalSec=0\n")
    service.machine.run("systemctl", "daemon-reload")
    service.machine.run("systemctl", "log-level", "debug")
    service.case("stop, start", start, load=None)
    service.case("reload", reload)
    service.case("reload x10", lambda it: times(10, reload, it))
    service.case("reload, wrong file", reload_of_nonsense)
    service.case("reload by the verb, wrong file", reload_by_verb)
    service.case("restart", restart)
    service.case("restart x10", lambda it: times(10, restart, it))
    service.case("restart, elsewhere x10", lambda it: times(10, restart_elsewhere, it), load=None)
    service.case("systemctl kill", signals_to_all)
    service.case("USR2", upgrade)
    service.case("USR2 x10", lambda it: times(10, upgrade, it) or "MainPID is the same")
    service.case("USR2, to /bin/false", upgrade_to_false)
    service.case("two more instances", instances)


def instances(service):
    """Of a template, as in examples/deploy/README.md. One is stopped, and the other one goes on."""
    run = service.machine.run
    template = run("sed", "-E", *TEMPLATE, f"/usr/lib/systemd/system/{UNIT}")
    service.write("/run/systemd/system/prefork-server@.service", template)
    units = []
    for name, port in ("a", 8081), ("b", 8082):
        text = CONFIGURATION.replace(str(PORT), str(port))
        service.write(f"/etc/prefork-server/{name}.toml", text)
        units.append(f"prefork-server@{name}.service")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", *units)
    run("systemctl", "stop", units[0])
    run("env", "RUNTIME_DIRECTORY=/run/prefork-server-b", BINARY, "reload", "--wait")
    run("systemctl", "reload", units[1])
    assert run("curl", "-sS", "--fail", "--data", "b", "http://127.0.0.1:8082/") == "b"
    run("systemctl", "stop", units[1])
    run("systemctl", "clean", "--what=all", *units)
    service.machine.path("/run/systemd/system/prefork-server@.service").unlink()
    run("rm", "--recursive", "/etc/prefork-server")
    run("systemctl", "daemon-reload")


@contextlib.contextmanager
def socket_unit(service, drop_in):
    """systemd has the listeners, and starts the service for the first connection."""
    files = [f"/run/systemd/system/{SOCKET}", f"/run/systemd/system/{SOCKET}.d/test.conf"]
    source = service.machine.path(f"/usr/share/doc/prefork-server/examples/{SOCKET}")
    for file, text in zip(files, (source.read_text(), drop_in), strict=True):
        service.write(file, text)
    service.machine.run("systemctl", "daemon-reload")
    service.machine.run("systemctl", "stop", UNIT)
    service.machine.run("systemctl", "start", SOCKET)
    assert service.show("ActiveState") == "inactive"
    yield
    service.machine.run("systemctl", "stop", SOCKET, UNIT)
    for file in files:
        service.machine.path(file).unlink()


def sockets(service):
    path = "/run/prefork-server-test.sock"
    more = f"[Socket]\nListenStream={path}\nSocketUser=prefork\nSocketMode=0660\n"
    with socket_unit(service, more):
        restarts = lambda it: times(5, lambda it: it.machine.run("systemctl", "restart", UNIT), it)
        # The first request starts it.
        service.case("socket unit: restart x5", restarts, port=80)
        assert service.show("ActiveState") == "active"
        for name, port in ("TCP", 80), ("Unix", service.machine.path(path)):
            service.case(f"socket unit, {name}: reload, USR2, restart, stop", each, port=port)
        assert service.machine.run("stat", "--format", "%U %a", path) == "prefork 660"


def each(service):
    reload(service)
    upgrade(service)
    restart(service)
    # The next connection starts it again.
    service.machine.run("systemctl", "stop", UNIT)
    until("the service", service.is_complete)

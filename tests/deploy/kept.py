"""Connections of HTTP/2 and TLS are kept while workers are replaced. The load is h2load(1), which
asks by four streams at a time and looks at the status of each response."""

import re
import subprocess

import https
import operations
from machine import until
from service import PORT

CLIENTS = 8
# Counted, not timed: of a connection that is cut, all requests that are left have failed.
OFTEN = ["--requests=200000", "--max-concurrent-streams=4", f"--data={__file__}"]
# Most of the time nothing is asked on a connection.
SELDOM = ["--requests=80", "--max-concurrent-streams=1", "--rps=1"]
KEYS = 'tls-cert = "/etc/prefork-server/cert.pem"\ntls-key = "/etc/prefork-server/key.pem"\n'


class Kept:
    """The load. It ends by itself."""

    def __init__(self, service, scheme, options):
        self.service, self.before = service, service.status()["totals"]
        command = ["h2load", f"--clients={CLIENTS}", *options]
        command = service.machine.network(*command, f"{scheme}://127.0.0.1:{PORT}/")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        until("its connections", lambda: self.counted("connections") >= CLIENTS)

    def counted(self, name):
        return self.service.status()["totals"][name] - self.before[name]

    def again_and_again(self, deed):
        times = 0
        while self.process.poll() is None:
            deed(self.service)
            times += 1
        return f"{times} times; {self.counted('handed_over')} connections moved"

    def finish(self):
        told, _ = self.process.communicate()
        asked = re.search(r"requests: (\d+) total,.* (\d+) succeeded", told)
        total, succeeded = map(int, asked.groups())
        # In place of a connection that the server closes by its word, h2load makes another one.
        closed = self.counted("connections") - CLIENTS
        return {"requests": total, "failed": total - succeeded, "closed": closed, "losses": told}


def case(service, name, deed, scheme, *options):
    load = lambda *_: Kept(service, scheme, options)
    service.case(name, lambda it: it.load.again_and_again(deed), load=load)
    assert service.rows[-1][3] == "0", "no connection is closed"


def certificate(service):
    for name, text in zip(("key.pem", "cert.pem"), https.key_pair("test"), strict=True):
        service.write(f"/etc/prefork-server/{name}", text)
        service.machine.run("chown", "prefork", f"/etc/prefork-server/{name}")


def all_of(service, upgrade_package):
    deeds = {"reload": operations.reload, "USR2": operations.upgrade, "dpkg": upgrade_package}
    for name, deed in deeds.items():
        case(service, f"h2c: {name}", deed, "http", *OFTEN)
    certificate(service)
    service.write("/etc/prefork-server.toml", operations.CONFIGURATION + KEYS)
    operations.restart(service)
    for name, deed in deeds.items():
        case(service, f"HTTP/2, TLS: {name}", deed, "https", *OFTEN)
        case(service, f"HTTP/1.1, TLS: {name}", deed, "https", "--h1", *OFTEN)
    case(service, "HTTP/2, TLS, at rest: reload", operations.reload, "https", *SELDOM)
    service.write("/etc/prefork-server.toml", operations.CONFIGURATION)
    operations.restart(service)
    service.machine.run("rm", "--recursive", "/etc/prefork-server")

"""The service speaks HTTPS by the drop-ins of examples/deploy/README.md, as they stand there."""

import re
import subprocess
import tempfile
import textwrap
from pathlib import Path

import operations
from service import UNIT

README = Path(__file__).resolve().parents[2] / "examples/deploy/README.md"
LIVE = "/etc/letsencrypt/live/example.org"
DROP_IN = f"/run/systemd/system/{UNIT}.d/https.conf"


def key_pair(name):
    """A key and a certificate for the name."""
    with tempfile.TemporaryDirectory() as folder:
        key, cert = Path(folder) / "key.pem", Path(folder) / "cert.pem"
        make = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt"]
        make += ["ec_paramgen_curve:P-256", "-subj", f"/CN={name}", "-keyout", key, "-out", cert]
        subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
        return key.read_text(), cert.read_text()


def documented():
    """What the page says: the drop-ins of the socket and of the service, and the settings."""
    page = README.read_text().split("\n### HTTPS\n")[1].split("\n### ")[0]
    blocks = re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", page)
    drop_ins, settings = map(textwrap.dedent, blocks)
    socket, service = drop_ins.split("[Service]")
    return socket, f"[Service]{service}", settings


def renew(service, name):
    """As certbot does it: only root may read them."""
    for file, text in zip(("privkey.pem", "fullchain.pem"), key_pair(name), strict=True):
        service.write(f"{LIVE}/{file}", text)
    service.machine.run("chmod", "--recursive", "go=", LIVE)


def served(service):
    """The name in the certificate that a client gets."""
    client = service.machine.network("openssl", "s_client", "-connect", "127.0.0.1:443")
    told = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return re.search(r"subject=CN ?= ?(\w+)", told.stdout)[1]


def renewed(service):
    run = service.machine.run
    # The first connection starts the service.
    assert served(service) == "one"
    ask = ["curl", "-sS", "--output", "/dev/null", "--write-out", "%{http_code} %{redirect_url}"]
    assert run(*ask, "http://127.0.0.1/tea") == "308 https://127.0.0.1/tea"
    assert run("curl", "-sS", "--insecure", "--data", "tea", "https://127.0.0.1/") == "tea"
    renew(service, "two")
    operations.reload(service)
    assert served(service) == "one", "systemd reads the files when the service starts"
    operations.restart(service)
    assert served(service) == "two"


def all_of(service):
    socket, drop_in, settings = documented()
    renew(service, "one")
    service.write(DROP_IN, drop_in)
    service.write("/etc/prefork-server.toml", operations.CONFIGURATION + settings)
    with operations.socket_unit(service, socket):
        service.case("socket unit, HTTPS: redirect, reload, restart", renewed, load=None)
    service.machine.path(DROP_IN).unlink()

"""requests, httpx and aiohttp, those that are installed. The arguments are in `programs.rs`."""

import asyncio
import importlib.util
import json
import ssl
import sys
import traceback

HTTP, HTTPS, CA, UPSTREAM, REQUESTS, GENERATIONS = sys.argv[1:]
REQUESTS, GENERATIONS = int(REQUESTS), int(GENERATIONS)
PIECE = 65536
FAILURES_MAX = 5


def body(number, length):
    return b"%016d" % number * (length // 16)


class Case:
    """What a case has to send, and what has come back."""

    def __init__(self, name, operation, version):
        self.name, self.operation, self.version = name, operation, version
        self.wanted = REQUESTS if operation in ("get", "fresh", "websocket") else REQUESTS // 8
        self.requests = self.failed = self.closed = 0
        self.peers, self.generations = set(), set()

    def goes_on(self):
        is_done = self.requests >= self.wanted and len(self.generations) >= GENERATIONS
        return not is_done and self.failed < FAILURES_MAX

    def next(self):
        """The method, the path and the body of the next request."""
        self.requests += 1
        path = f"/{self.operation}/{self.requests}"
        if self.operation == "post":
            return "POST", path, body(self.requests, 1 << 20)
        if self.operation == "chunked":
            return "POST", path, body(self.requests, 4 * PIECE)
        return "GET", path, b""

    def check(self, asked, status, response):
        method, path, sent = asked
        framing = {"post": f"length={len(sent)}", "chunked": "stream"}.get(self.operation, "empty")
        version = self.version if UPSTREAM == "-" else UPSTREAM
        line, _, rest = response.partition(b"\n")
        *start, generation, peer = line.decode().split(" ")
        assert status == 200 and start == [method, path, framing, version], (status, line)
        assert rest == sent, f"{path}: {len(rest)} other bytes"
        self.generations.add(generation)
        self.peers.add(peer)

    def fail(self):
        self.failed += 1
        print(f"{self.name} {self.operation} {self.requests}:", file=sys.stderr)
        traceback.print_exc(limit=-2)

    def report(self):
        line = {
            "case": f"{self.name} {self.operation}",
            "requests": self.requests,
            "failed": self.failed,
            "connections": len(self.peers),
            "generations": len(self.generations),
            "closed": self.closed,
        }
        print(json.dumps(line), flush=True)


def skip(case, why):
    print(json.dumps({"case": case, "skipped": why}), flush=True)


def pieces(sent):
    return (sent[at : at + PIECE] for at in range(0, len(sent), PIECE))


def run(name, version, ask):
    """`ask` sends a request and returns the status and the body of the response."""
    operations = ["get", "post", "chunked"] + (["fresh"] if version == "HTTP/1.1" else [])
    for operation in operations:
        case = Case(name, operation, version)

        while case.goes_on():
            asked = case.next()
            try:
                case.check(asked, *ask(operation, *asked))
            except Exception:
                case.fail()
        case.report()


def use_requests(requests):
    for scheme, base in (("http", HTTP), ("https", HTTPS)):
        session = requests.Session()

        def ask(operation, method, path, sent):
            data = pieces(sent) if operation == "chunked" else sent or None
            headers = {"connection": "close"} if operation == "fresh" else {}
            # The session's own `verify` has less weight than the environment.
            response = session.request(
                method, base + path, data=data, headers=headers, timeout=20, verify=CA
            )
            return response.status_code, response.content

        run(f"requests {scheme}", "HTTP/1.1", ask)


def use_httpx(httpx):
    trust = ssl.create_default_context(cafile=CA)
    kinds = [("http", HTTP, False), ("https", HTTPS, False)]
    if UPSTREAM == "-":
        skip("httpx h2", "the module h2 fails what is in progress when GOAWAY comes (issue 1199)")
    elif not importlib.util.find_spec("h2"):
        skip("httpx h2", "the module h2 is not installed")
    else:
        kinds += [("h2c", HTTP, True), ("h2", HTTPS, True)]
    for kind, base, http2 in kinds:
        client = httpx.Client(http1=not http2, http2=http2, verify=trust, timeout=20)
        version = "HTTP/2.0" if http2 else "HTTP/1.1"

        def ask(operation, method, path, sent):
            content = pieces(sent) if operation == "chunked" else sent or None
            headers = {"connection": "close"} if operation == "fresh" else {}
            response = client.request(method, base + path, content=content, headers=headers)
            assert response.http_version in (version, version.removesuffix(".0"))
            return response.status_code, response.content

        run(f"httpx {kind}", version, ask)


def use_aiohttp(aiohttp):
    async def all_cases():
        trust = ssl.create_default_context(cafile=CA)
        for scheme, base in (("http", HTTP), ("https", HTTPS)):
            connector = aiohttp.TCPConnector(ssl=trust)
            timeout = aiohttp.ClientTimeout(total=20)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                for operation in ("get", "post", "chunked", "fresh"):
                    await aiohttp_requests(session, f"aiohttp {scheme}", base, operation)
                await aiohttp_messages(aiohttp, session, f"aiohttp {scheme}", base)

    asyncio.run(all_cases())


async def aiohttp_requests(session, name, base, operation):
    case = Case(name, operation, "HTTP/1.1")
    while case.goes_on():
        method, path, sent = asked = case.next()

        async def stream():
            for piece in pieces(sent):
                yield piece

        data = stream() if operation == "chunked" else sent or None
        headers = {"connection": "close"} if operation == "fresh" else {}
        try:
            async with session.request(method, base + path, data=data, headers=headers) as response:
                case.check(asked, response.status, await response.read())
        except Exception:
            case.fail()
    case.report()


async def aiohttp_messages(aiohttp, session, name, base):
    """A message whose echo has not come before Going Away is sent again on the next connection."""
    case = Case(name, "websocket", "HTTP/1.1")
    socket = None
    while case.goes_on():
        case.requests += 1
        sent = f"message {case.requests}"
        try:
            while True:
                if socket is None:
                    socket = await session.ws_connect(base + "/websocket")
                    case.generations.add(await socket.receive_str())
                    case.peers.add(len(case.peers))
                if not socket.closed:
                    await socket.send_str(sent)
                echo = await socket.receive()
                if echo.type == aiohttp.WSMsgType.TEXT:
                    assert echo.data == sent, (echo.data, sent)
                    break
                assert socket.close_code == 1001, (echo, socket.close_code)
                case.closed += 1
                socket = None
        except Exception:
            case.fail()
            socket = None
    if socket is not None:
        await socket.close()
    case.report()


for library, use in (("requests", use_requests), ("httpx", use_httpx), ("aiohttp", use_aiohttp)):
    try:
        module = importlib.import_module(library)
    except ImportError:
        skip(library, f"the module {library} is not installed")
        continue
    use(module)

// Node: its fetch, http, https, http2 and WebSocket, and the packages undici and ws where they are
// installed. The arguments are in `programs.rs`.

import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { Readable } from "node:stream";

import { Counts, talk } from "./case.mjs";

const [plain, secure, caFile, upstream, wanted, generations] = process.argv.slice(2);
const ca = readFileSync(caFile);
const PIECE = 65536;

const body = (number, length) => Buffer.alloc(length, String(number).padStart(16, "0"));

function* pieces(sent) {
    for (let at = 0; at < sent.length; at += PIECE) yield sent.subarray(at, at + PIECE);
}

class Case extends Counts {
    goaway = 0;

    constructor(name, operation, version) {
        super(operation, wanted, generations);
        Object.assign(this, { name, version });
    }

    next() {
        const number = ++this.requests;
        const asked = { operation: this.operation, method: "GET", framing: "empty" };
        asked.path = `/${this.operation}/${number}`;
        asked.sent = Buffer.alloc(0);
        if (this.operation === "post") {
            asked.sent = body(number, 1 << 20);
            Object.assign(asked, { method: "POST", framing: `length=${asked.sent.length}` });
        } else if (this.operation === "chunked") {
            asked.sent = body(number, 4 * PIECE);
            Object.assign(asked, { method: "POST", framing: "stream" });
        }
        return asked;
    }

    check({ method, path, framing, sent }, [status, received]) {
        const end = received.indexOf("\n");
        const line = received.subarray(0, end).toString();
        const version = upstream === "-" ? this.version : upstream;
        const expected = `${method} ${path} ${framing} ${version} `;
        if (status !== 200 || !line.startsWith(expected)) throw new Error(`${status}: ${line}`);
        if (!received.subarray(end + 1).equals(sent)) throw new Error("other bytes");
        const [generation, peer] = line.slice(expected.length).split(" ");
        this.generations.add(generation);
        this.peers.add(peer);
    }

    fail(error) {
        // node:http2 refuses by itself what it has not sent when GOAWAY comes, and leaves it to its
        // user to send it again.
        if (`${error}`.includes("NGHTTP2_REFUSED_STREAM")) {
            this.goaway++;
            return;
        }
        this.failed++;
        console.error(`${this.name} ${this.operation} ${this.requests}:`, error);
    }

    report() {
        const { name, operation, requests, failed, goaway, closed } = this;
        const counts = { requests, failed, goaway, closed };
        const sizes = { connections: this.peers.size, generations: this.generations.size };
        console.log(JSON.stringify({ case: `${name} ${operation}`, ...counts, ...sizes }));
    }
}

const skip = (name, skipped) => console.log(JSON.stringify({ case: name, skipped }));

// `ask` sends a request and returns the status and the body of the response.
async function run(name, version, ask, operations, parallel = 1) {
    for (const operation of operations) {
        const it = new Case(name, operation, version);
        while (it.goesOn()) {
            const asked = Array.from({ length: parallel }, () => it.next());
            const one = async (asked) => {
                try {
                    it.check(asked, await ask(asked));
                } catch (error) {
                    it.fail(error);
                }
            };
            await Promise.all(asked.map(one));
        }
        it.report();
    }
}

const message = (name) => new Case(name, "websocket", "HTTP/1.1");

async function collect(stream) {
    const parts = [];
    for await (const part of stream) parts.push(part);
    return Buffer.concat(parts);
}

const fetched = (fetch, base, more) => async ({ operation, method, path, sent }) => {
    const options = { method, ...more, signal: AbortSignal.timeout(20_000) };
    if (operation === "post") options.body = sent;
    if (operation === "chunked") {
        Object.assign(options, { body: Readable.toWeb(Readable.from(pieces(sent))), duplex: "half" });
    }
    const response = await fetch(base + path, options);
    return [response.status, Buffer.from(await response.arrayBuffer())];
};

const asked = (module, base, agent) => ({ operation, method, path, sent }) =>
    new Promise((resolve, reject) => {
        const headers = operation === "post" ? { "content-length": sent.length } : {};
        const options = { method, headers, ca, timeout: 20_000 };
        options.agent = operation === "fresh" ? false : agent;
        const request = module.request(base + path, options);
        request.on("timeout", () => request.destroy(new Error("no response in time")));
        request.on("error", reject);
        request.on("response", (response) => {
            collect(response).then((received) => resolve([response.statusCode, received]), reject);
        });
        for (const piece of pieces(sent)) request.write(piece);
        request.end();
    });

// As Node's documentation says: a session that is closed or told to go takes no new request.
function session(base) {
    let session;
    const open = () => {
        if (!session || session.closed || session.destroyed) {
            const next = (session = http2.connect(base, { ca }));
            next.on("error", (error) => console.error("session:", error));
            next.on("goaway", () => next === session && (session = undefined));
        }
        return session;
    };
    const ask = ({ operation, method, path, sent }) =>
        new Promise((resolve, reject) => {
            const headers = { ":method": method, ":path": path };
            if (operation === "post") headers["content-length"] = sent.length;
            const stream = open().request(headers);
            let status;
            stream.setTimeout(20_000, () => stream.destroy(new Error("no response in time")));
            stream.on("error", reject);
            stream.on("response", (head) => (status = head[":status"]));
            collect(stream).then((received) => resolve([status, received]), reject);
            for (const piece of pieces(sent)) stream.write(piece);
            stream.end();
        });
    return { ask, close: () => session?.close() };
}

// A package that is installed beside Node or on NODE_PATH.
function optional(name) {
    const global = path.join(path.dirname(process.execPath), "../lib/node_modules/");
    for (const from of [import.meta.url, global]) {
        try {
            return createRequire(from)(name);
        } catch (error) {
            if (error.code !== "MODULE_NOT_FOUND") throw error;
        }
    }
    return undefined;
}

const ALL = ["get", "post", "chunked"];
const undici = optional("undici");
const ws = optional("ws");

for (const [scheme, base, module] of [["http", plain, http], ["https", secure, https]]) {
    const agent = new module.Agent({ keepAlive: true });
    await run(`node:${scheme}`, "HTTP/1.1", asked(module, base, agent), [...ALL, "fresh"]);
    agent.destroy();
    await run(`fetch ${scheme}`, "HTTP/1.1", fetched(fetch, base), ALL);
    const address = base.replace("http", "ws") + "/websocket";
    if (globalThis.WebSocket) await talk(message(`WebSocket ${scheme}`), () => new WebSocket(address));
    else skip(`WebSocket ${scheme}`, `Node ${process.version} has no WebSocket`);
    if (ws) await talk(message(`ws ${scheme}`), () => new ws.WebSocket(address, { ca }));
    else skip(`ws ${scheme}`, "the package ws is not installed");
}
for (const [kind, base] of [["h2c", plain], ["h2", secure]]) {
    const { ask, close } = session(base);
    await run(`node:http2 ${kind}`, "HTTP/2.0", ask, ALL, 4);
    close();
}
if (undici) {
    for (const [kind, base, version] of [
        ["http", plain, "HTTP/1.1"],
        ["https", secure, "HTTP/1.1"],
        ["h2", secure, "HTTP/2.0"],
    ]) {
        const allowH2 = kind === "h2";
        if (allowH2 && upstream === "-") {
            skip("undici h2", "undici 7 and 8 fail what is in progress when GOAWAY comes");
            continue;
        }
        const dispatcher = new undici.Agent({ allowH2, connect: { ca } });
        const ask = fetched(undici.fetch, base, { dispatcher });
        await run(`undici ${kind}`, version, ask, ALL, allowH2 ? 4 : 1);
        if (!allowH2) {
            const address = base.replace("http", "ws") + "/websocket";
            await talk(message(`undici ${kind}`), () => new undici.WebSocket(address, { dispatcher }));
        }
        await dispatcher.close();
    }
} else skip("undici", "the package undici is not installed");

// What Node's client and the page have in common.

const FAILURES_MAX = 5;

// What a case has to ask, and what has come of it.
export class Counts {
    requests = 0;
    failed = 0;
    closed = 0;
    peers = new Set();
    generations = new Set();

    constructor(operation, wanted, generations) {
        this.operation = operation;
        this.wanted = ["post", "chunked"].includes(operation) ? wanted / 8 : wanted;
        this.wantedGenerations = generations;
    }

    goesOn() {
        const isDone =
            this.requests >= this.wanted && this.generations.size >= this.wantedGenerations;
        return !isDone && this.failed < FAILURES_MAX;
    }
}

// A message whose echo has not come before Going Away is sent again on the next connection. `open`
// makes a WebSocket.
export async function talk(it, open) {
    let socket, received, wake;
    const take = async () => {
        while (received.length === 0) await new Promise((resolve) => (wake = resolve));
        return received.shift();
    };
    const connect = async () => {
        const queue = (received = []);
        const add = (text) => {
            queue.push(text);
            wake?.();
        };
        socket = open();
        socket.addEventListener("message", ({ data }) => add(data));
        socket.addEventListener("close", ({ code }) => add(`closed ${code}`));
        socket.addEventListener("error", (event) => console.error(it.name, event.message));
        it.generations.add(await take());
        it.peers.add(it.peers.size);
    };
    while (it.goesOn()) {
        const sent = `message ${++it.requests}`;
        try {
            for (let echo; echo !== sent; ) {
                if (!socket) await connect();
                if (socket.readyState === 1) socket.send(sent);
                echo = await take();
                if (echo === "closed 1001") {
                    it.closed++;
                    socket = undefined;
                } else if (echo !== sent) throw new Error(echo);
            }
        } catch (error) {
            it.fail(error);
            socket = undefined;
        }
    }
    socket?.close();
    it.report();
}

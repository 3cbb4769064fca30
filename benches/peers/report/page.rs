//! The tables and pictures as a page.

use std::fmt::Write as _;

use super::Results;
use super::pictures::Picture;
use super::table;

const HEAD: &str = "\
# prefork-server beside other servers

Written by `cargo bench --bench peers -- --write`; the next run overwrites it.

Every server has one worker or thread, pinned to one CPU; the load is pinned to another. All answer
with `Hello, World!` as `text/plain`, each with the other headers it sends by default. They take
turns, each on a newly started server, and a ratio is the median of the ratios within each round:

- **ours / it** below 1 means that prefork-server needs less than that server.
- **it / floor** is how much a server adds to what any server on epoll must do. The floor is one
  `recv(2)` and one `send(2)` of fixed bytes, without parsing.

CPU is user and system time of all processes of a server. Latency counts from the moment a request
was meant to be sent, so a server that cannot keep up with a rate is charged with its queue. Slow
clients come within the first of two seconds, and their process yields its CPU to anybody's. Memory
is the proportional set size of all processes above that of the same server without connections;
what the kernel holds for a connection is the same for all and left out. nginx has room for 16,384
connections before the first one comes, which a table of its own shows. In memory there is no
kernel, and the client never waits: the way of fasthttp's own benchmark.

Within TLS all have the same key on P-256, and their own defaults for the rest; the client offers
TLS 1.3 alone.

Rust servers have mimalloc, as ours has, but for the memory of idle connections and the figures
beside them, where they have the system's allocator, which holds less. hyper and axum are as they
come (`pipeline_flush` is off), and accept on their runtime's own threads.
";

pub(super) fn of(results: &Results, pictures: &[Picture]) -> String {
    let mut page = HEAD.to_owned();
    let scale = &results.scale;
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "\nRounds: {} of {} ms for CPU, {} for memory and latency.\n",
        scale.rounds.0,
        scale.turn.as_millis(),
        scale.rounds.third().0,
    );
    page.push_str("| | |\n|---|---|\n");
    for (name, fact) in &results.facts.0 {
        let _ = writeln!(page, "| {name} | {fact} |");
    }
    for picture in pictures {
        let _ = write!(page, "\n![{}](pictures/{})\n", picture.title, picture.file);
    }
    for table in table::all(results) {
        let _ = write!(page, "\n## {}\n\n{}", table.title, table.as_markdown());
    }
    page
}

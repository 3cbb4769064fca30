//! The figures of `models`, and the table of each question. Medians of the rounds, and ratios to
//! `multi_thread` in the same round.
//!
//! - **requests/s**: right responses in a second, closed loop: each connection sends its next
//!   request when the last response is there.
//! - **CPU us**: user and system time of all processes and threads of the server, divided by the
//!   requests. From `/proc/PID/task/TID/schedstat` (nanoseconds), or `stat` (ticks) where the
//!   kernel lacks it. **ratio (range)** is over the rounds. A range that includes 1.00 shows no
//!   difference.
//! - **p50, p99, p99.9**: latencies in the open loop, from the moment when the request *should*
//!   have been sent, so that a server which stalls is charged with all that should have happened
//!   meanwhile. The rate is half of what the slowest server of the question reached in a trial
//!   before, and the same for all. With less than a few thousand requests in a second the p99.9 is
//!   the slowest response of a round, or nearly so.
//! - **memory MiB**: the proportional set size of all the server's processes with the connections
//!   open. The programs are the bench's own, code and all: only differences mean something. **idle
//!   B** is the growth by one idle connection, in a server that was started for that round.
//! - **busiest worker**: the share of the connections that the worker with the most had; 50 % is
//!   even with two. There is none in `multi_thread`, where tasks move between threads.
//! - **driver us**: the CPU time that the load itself burnt for a request. Close to a request's
//!   share of the wall clock, the driver was the bottleneck, and only the CPU column is about the
//!   server.
//! - **response B**: the length of a response with its head. Servers that send more headers do
//!   more.
//! - **failed**: requests without a right response, by kind. Each response is compared with the
//!   expected one, length and every byte of the body. A failure does not end the bench; a thousand
//!   in one run end that run.

use crate::support::report::{Cell, Sheet, Table};

pub(crate) const PER_SECOND: &str = "requests_per_s";
pub(crate) const CPU: &str = "cpu_us";
pub(crate) const DRIVER: &str = "driver_us";
pub(crate) const P50: &str = "p50_us";
pub(crate) const P99: &str = "p99_us";
pub(crate) const P999: &str = "p999_us";
/// In KiB.
pub(crate) const MEMORY: &str = "memory_kib";
/// In bytes, of a connection.
pub(crate) const IDLE: &str = "idle_bytes";
/// In per cent.
pub(crate) const BUSIEST: &str = "busiest_worker_percent";
/// In bytes.
pub(crate) const RESPONSE: &str = "response_bytes";

/// What ratios are to: what most Rust servers run on.
pub(crate) const YARDSTICK: &str = "multi_thread";

pub(crate) fn table(sheet: &Sheet) -> Table {
    let title = format!("{}: {}", sheet.question, sheet.about);
    let to = sheet.row(YARDSTICK);
    Table::of_rows(&title, &sheet.rows, |row| {
        let digits = |head, figure, digits: usize| {
            let median = row.median(figure);
            cell(head, median.map(|it| format!("{it:.digits$}")))
        };
        let ratios = |figure| row.ratios(to?, figure);
        let shares = row.sample(BUSIEST).map(|shares| {
            let (median, least, most) = (shares.median(), shares.least(), shares.most());
            format!("{median:.0} % ({least:.0}-{most:.0})")
        });
        let mib = row.median(MEMORY).map(|kib| format!("{:.1}", kib / 1024.0));
        let speed = ratios(PER_SECOND).map(|it| format!("{:.2}", it.median()));
        vec![
            digits("requests/s", PER_SECOND, 0),
            cell("ratio", speed),
            digits("CPU us", CPU, 2),
            cell("ratio (range)", ratios(CPU).map(|it| it.to_string())),
            digits("p50 us", P50, 0),
            digits("p99 us", P99, 0),
            digits("p99.9 us", P999, 0),
            cell("memory MiB", mib),
            digits("idle B", IDLE, 0),
            cell("busiest worker", shares),
            digits("driver us", DRIVER, 2),
            digits("response B", RESPONSE, 0),
        ]
    })
}

fn cell(head: &str, text: Option<String>) -> Cell {
    (head.to_owned(), text)
}

//! The load that every comparison is made with: one thread, one epoll instance, HTTP/1.1.
//!
//! [`Driver`] keeps its connections from run to run. A *closed* loop sends the next request when
//! the last response is there, and shows how fast a server can go. An *open* loop sends at a
//! constant rate, whatever the server does, and counts the time of each response from the moment
//! its request was meant to be sent: a server that stalls is charged with all that should have
//! happened meanwhile. Each client of the open loop has its share of the arrivals and waits for
//! its own responses, as people do, so a connection on a slow worker cannot pass its requests to
//! another.
//!
//! Every response is checked, to the last byte if its body is known. Failures are counted by kind
//! and do not end the run, until there are more than the [budget](Plan::budget). A run ends by
//! itself: a request without a response within [`Plan::timeout`] counts as silent.
//!
//! ```ignore
//! let hello = Ask::get("/").expecting("Hello, World!");
//! let mut driver = Driver::new(address, Plan::new(64, hello));
//! driver.warm();
//! let fast = driver.closed(Extent::For(Duration::from_secs(1))).per_second();
//! let fair = driver.open(fast / 2.0, Duration::from_secs(1));
//! println!("{fast} {:?} {}", fair.latency(0.99), fair.failures);
//! ```
//!
//! One thread, because the driver shares the machine with the server. Nothing is allocated after
//! [`Driver::new`], but within TLS.

mod client;
mod driver;
mod outcome;
mod plan;
mod response;
mod schedule;
mod stream;
mod tls;

pub(crate) use self::driver::Driver;
pub(crate) use self::outcome::{Failure, Failures, Outcome};
pub(crate) use self::plan::{Ask, Expected, Extent, Plan};
pub(crate) use self::response::{Fate, Response};
pub(crate) use self::tls::{Handshakes, Tls};

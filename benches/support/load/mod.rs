//! The load that every comparison is made with: one thread, one epoll instance, HTTP/1.1.
//!
//! [`Driver`] keeps its connections from run to run. A *closed* loop sends the next request when
//! the last answer is there, and tells how fast a server can go. An *open* loop sends at a constant
//! rate whatever the server does, and counts each answer's time from the moment its request was
//! meant to be sent: a server that stalls is charged with all that should have happened meanwhile.
//! Each of the open loop's clients has its share of the arrivals and waits for its own answers, as
//! people do, so a connection on a slow worker cannot pass its requests to another.
//!
//! Every answer is checked, to the last byte if its body is known. What goes wrong is counted by
//! kind and does not end the run, until there is more of it than the [budget](Plan::budget). A run
//! ends by itself: what has not been answered within [`Plan::patience`] counts as silent.
//!
//! ```ignore
//! let hello = Ask::get("/").expecting("Hello, World!");
//! let mut driver = Driver::new(Plan::new(address, 64, hello));
//! driver.warm();
//! let fast = driver.closed(Extent::For(Duration::from_secs(1)));
//! let fair = driver.open(Rate::per_second(fast.per_second() / 2.0), Duration::from_secs(1));
//! println!("{} {:?} {}", fast.per_second(), fair.latency(0.99), fair.failures);
//! ```
//!
//! One thread, because the driver shares the machine with the server. After [`Driver::new`] and
//! but for the [`Outcome`] at the end of a run nothing is allocated, [`Tls`] aside.

mod answer;
mod client;
mod driver;
mod outcome;
mod plan;
mod schedule;
mod stream;
mod tls;

pub(crate) use self::answer::{Answer, Fate, Fed};
pub(crate) use self::driver::Driver;
pub(crate) use self::outcome::{End, Failure, Failures, Outcome};
pub(crate) use self::plan::{Ask, Expected, Extent, Pipeline, Plan, Rate, Share};
pub(crate) use self::tls::{Handshakes, Tls};

//! What does it cost to wait for something else, as most handlers do?
//!
//! 512 connections whose handler sleeps 100 ms before it answers. The most that any server can
//! answer is 5,120 in a second; the CPU time and the latency beyond 100 ms are what differs.
//!
//! Not measured: what is waited for. A timer stands for a database.

use crate::load::Ask;
use crate::question::Question;
use crate::server::BODY;

pub(crate) fn questions() -> Vec<Question> {
    let ask = Ask::get("/sleep").expecting(BODY);
    vec![Question::new("sleep_100ms_512", 512, ask)]
}

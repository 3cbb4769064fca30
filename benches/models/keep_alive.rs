//! What does a request on a kept connection cost, with one client, a few, many?
//!
//! With 1 and 4 connections the kernel's spread over the listeners is a matter of luck, and each
//! round draws anew. With 1 most of the time is spent in waking each other up.
//!
//! Not measured: more connections than fit the caches (see `idle`), handlers that do anything.

use crate::load::Ask;
use crate::question::Question;
use crate::server::BODY;

pub(crate) fn questions() -> Vec<Question> {
    [
        ("keep_alive_1", 1),
        ("keep_alive_4", 4),
        ("keep_alive_64", 64),
        ("keep_alive_512", 512),
    ]
    .map(|(name, connections)| Question::new(name, connections, Ask::get("/").expecting(BODY)))
    .into()
}

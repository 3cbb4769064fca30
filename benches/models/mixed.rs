//! How long do light requests wait behind a heavy one?
//!
//! 64 connections; one request in a hundred computes for 5 ms, the others do nothing. Whoever
//! shares a thread with the heavy one waits for it: in prefork all other connections of that
//! worker, in the multi-threaded runtime only those that no other thread takes over.
//!
//! Not measured: which of the latencies are the heavy requests' own. They are one in a hundred, so
//! p50 is the light ones', and p99 is where the two meet.

use crate::load::{Ask, Share};
use crate::question::Question;
use crate::server::{BODY, COMPUTED};

pub(crate) fn questions() -> Vec<Question> {
    let heavy = Ask::get("/cpu/5000").expecting(COMPUTED);
    let question = Question::new("mixed_64", 64, Ask::get("/").expecting(BODY));
    vec![question.seldom(Share(10), heavy)]
}

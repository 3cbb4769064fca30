//! What does a request cost whose fifteen successors lie in the same buffer?
//!
//! 64 connections send 16 requests in one write and wait for all answers. With the system calls
//! shared among sixteen this is mostly parsing and the handler's way through hyper.
//!
//! Not measured: clients as they are. Browsers do not pipeline.

use crate::load::{Ask, Pipeline};
use crate::question::Question;
use crate::server::BODY;

pub(crate) fn questions() -> Vec<Question> {
    let ask = Ask::get("/").expecting(BODY);
    vec![Question::new("pipelined_x16", 64, ask).pipelined(Pipeline(16))]
}

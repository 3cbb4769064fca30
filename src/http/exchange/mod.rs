//! One request and its response, in HTTP/1 and HTTP/2.

pub(crate) mod body;
mod event_stream;
pub(crate) mod lifecycle;
pub(crate) mod message;
pub(crate) mod reply;
pub(crate) mod rules;
pub(crate) mod service;

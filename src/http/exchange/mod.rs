//! One request and its response, for either protocol.

pub(crate) mod body;
pub(crate) mod lifecycle;
pub(crate) mod message;
pub(crate) mod reply;
pub(crate) mod rules;
pub(crate) mod service;

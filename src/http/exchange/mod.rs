//! One request and its response, in HTTP/1 and HTTP/2.

pub(crate) mod body;
#[cfg(feature = "tower")]
mod connect_info;
pub(crate) mod date;
mod event_stream;
pub(crate) mod handler;
pub(crate) mod into_service;
pub(crate) mod length;
pub(crate) mod lifecycle;
pub(crate) mod message;
pub(crate) mod piece;
pub(crate) mod reply;
pub(crate) mod request_line;
pub(crate) mod rules;
pub(crate) mod service;
#[cfg(feature = "tower")]
pub(crate) mod tower;
pub(crate) mod unread;

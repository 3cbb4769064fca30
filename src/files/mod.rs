//! The files of a directory, and parts of files as bodies.
//!
//! [`Files`] serves a directory by the rules of RFC 9110. A worker keeps what it knows of a file
//! for a second, and the bytes of small files. So a request for a file that is asked for often
//! opens nothing and waits for no thread. The page [`guide::files`](crate::guide::files) says what
//! is served and how.
//!
//! [`FileBody`] is a file or a part of one as the body of any handler's response.

mod accept;
mod beneath;
mod body;
mod budget;
#[cfg(feature = "compression")]
mod compress;
mod cors;
mod encoding;
mod fallback;
mod hashed;
mod listing;
mod lookup;
mod names;
mod open_files;
mod options;
mod path;
mod range;
mod respond;
mod rules;
mod seen;
mod service;
#[cfg(test)]
mod tests;
#[cfg(feature = "tower")]
mod tower;
mod validators;
mod version;

pub use self::beneath::Symlinks;
pub use self::body::FileBody;
pub use self::cors::{Origin, OriginError};
pub use self::options::{Files, OpenError};
pub use self::rules::{HeaderRule, RuleError};
pub use self::service::{FileService, FilesFuture};
#[cfg(feature = "tower")]
pub use self::tower::{FileBytes, TowerFiles, TowerFilesFuture};

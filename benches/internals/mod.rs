//! What the benches need of the library's rooms. The library compiles this with the feature
//! `bench-internals`. It is hidden in the docs, it is not API, and any commit may change it.

mod counting;
mod deciding;
mod in_memory;

pub use counting::Counting;
pub use deciding::Deciding;
pub use in_memory::{Client, InMemory};

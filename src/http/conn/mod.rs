//! One connection: its socket, its task, and how it is closed or handed over.

pub(crate) mod handover;
pub(crate) mod lingering_close;
pub(crate) mod preface;
pub(crate) mod protocol;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod task;

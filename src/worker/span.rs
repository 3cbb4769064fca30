//! The span of what a worker or the admin process does on its thread.

use tracing::subscriber::NoSubscriber;
use tracing::{Span, dispatcher};

use crate::id::{Generation, Slot};

pub(crate) fn of_worker(slot: Slot, generation: Generation) -> Span {
    of(|| tracing::error_span!("worker", %slot, %generation))
}

pub(crate) fn of_admin() -> Span {
    of(|| tracing::error_span!("admin"))
}

/// The span, if there is a subscriber. Its level is that of errors, so that a subscriber that takes
/// any event of the process takes the span too. Without a subscriber, a logger of the crate `log`
/// would write it as the line of an error.
fn of(span: impl FnOnce() -> Span) -> Span {
    match dispatcher::get_default(|subscriber| subscriber.is::<NoSubscriber>()) {
        true => Span::none(),
        false => span(),
    }
}

//! Two futures, of which the first that ends decides.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// The output of the future that ends first; of `one`, if both have. The other one is dropped.
pub(super) async fn first_of<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

//! Handlers that wait until the test lets them go on.

use super::*;

/// Holds requests back. Clones are the same gate.
#[derive(Clone, Default)]
pub(super) struct Gate {
    /// A request has come to the gate.
    pub(super) begun: Rc<Notify>,
    /// The next request may pass, or the one that waits.
    pub(super) go: Rc<Notify>,
}

impl Gate {
    pub(super) async fn pass(&self) {
        self.begun.notify_one();
        self.go.notified().await;
    }
}

/// An app with a gate.
pub(super) fn gated<F>(app: impl Fn(Gate, Request) -> F) -> (Gate, impl Fn(Request) -> F)
where
    F: Future<Output = HandlerResult>,
{
    let gate = Gate::default();
    (gate.clone(), move |request| app(gate.clone(), request))
}

/// As [`hello`], behind the gate.
pub(super) async fn gated_hello(gate: Gate, request: Request) -> HandlerResult {
    gate.pass().await;
    hello(request).await
}

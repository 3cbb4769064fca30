//! The switch from serving to draining. There is no way back.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::drain::Idle;
use crate::worker::Worker;

/// Starts the drain. The master, a signal or the end of the master may do so, in any order.
#[derive(Clone, Debug)]
pub(crate) struct DrainSwitch(watch::Sender<Asked>);

/// Waits for the drain.
#[derive(Clone, Debug)]
pub(crate) struct Drain(watch::Receiver<Asked>);

/// What the worker was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    /// To drain. `None`: it was not.
    drain: Option<Idle>,
    /// Whether the whole server ends, now or after the pre-stop delay.
    is_stopping: bool,
}

impl Worker {
    /// Resolves when this worker has been asked to drain: to take on no more work, and to finish
    /// what is open. The worker cuts what is not finished within the drain timeout.
    ///
    /// Any task on any thread may await it. Tasks of connections that were upgraded to another
    /// protocol need it: HTTP connections are closed by the server, but only the task of an
    /// upgraded connection knows how its protocol ends. It has
    /// [`Http::upgrade_grace`](crate::Http::upgrade_grace) for that. Then its reads and writes
    /// fail.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use hyper::upgrade::Upgraded;
    /// use prefork_server::{BoxError, Request, Response, Worker};
    ///
    /// async fn respond(worker: Worker, mut request: Request) -> Result<Response, Infallible> {
    ///     let upgrade = hyper::upgrade::on(&mut request);
    ///     tokio::spawn(async move {
    ///         let mut stream = upgrade.await?;
    ///         tokio::select! {
    ///             () = worker.drain() => {}
    ///             end = talk(&mut stream) => return end,
    ///         }
    ///         // WebSocket: send a close frame with 1001, then read until the client's.
    ///         say_goodbye(stream).await
    ///     });
    ///     let mut response = Response::default();
    ///     *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    ///     // Add the headers `Connection` and `Upgrade`, and those of the protocol.
    ///     Ok(response)
    /// }
    /// # async fn talk(_stream: &mut Upgraded) -> Result<(), BoxError> { Ok(()) }
    /// # async fn say_goodbye(_stream: Upgraded) -> Result<(), BoxError> { Ok(()) }
    /// ```
    pub fn drain(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let drain = self.drain.clone();
        async move {
            drain.asked().await;
        }
    }

    /// Whether this worker has been asked to drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain.is_asked()
    }

    /// Whether the whole server was asked to end: from the first moment of its
    /// [pre-stop delay](crate::Prefork::pre_stop_delay) on, and not in a reload. A path at which a
    /// load balancer asks for the health of the server should respond with 503 then:
    ///
    /// ```
    /// use http::StatusCode;
    /// use prefork_server::Worker;
    ///
    /// fn health(worker: &Worker) -> StatusCode {
    ///     match worker.is_stopping() {
    ///         true => StatusCode::SERVICE_UNAVAILABLE,
    ///         false => StatusCode::OK,
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.drain.0.borrow().is_stopping
    }
}

impl DrainSwitch {
    pub(crate) fn new() -> (Self, Drain) {
        let (switch, drain) = watch::channel(Asked::default());
        (Self(switch), Drain(drain))
    }

    /// A worker that hands connections over may be asked later to close them, but not the reverse.
    pub(crate) fn start(&self, idle: Idle) {
        self.0.send_if_modified(|Asked { drain, .. }| {
            let news = drain.is_none() || (*drain == Some(Idle::HandOver) && idle == Idle::Close);
            if news {
                *drain = Some(idle);
            }
            news
        });
    }

    /// The whole server ends, now or later.
    pub(crate) fn note_stop(&self) {
        self.0.send_modify(|asked| asked.is_stopping = true);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.0.borrow().drain.is_some()
    }
}

impl Drain {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.borrow().drain.is_some()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.borrow().drain == Some(Idle::Close)
    }

    /// Resolves when the drain starts, with what becomes of idle connections at that moment.
    pub(crate) async fn asked(self) -> Idle {
        self.when(|_| true).await
    }

    /// Resolves when idle connections are to be closed.
    pub(crate) async fn closing(self) {
        self.when(|idle| idle == Idle::Close).await;
    }

    /// As [`Drain::closing`], but at the latest this long after the start of the drain.
    pub(crate) async fn closing_within(self, wait_max: Duration) {
        self.clone().asked().await;
        // Both results mean to close.
        let _: Result<(), Elapsed> = timeout(wait_max, self.closing()).await;
    }

    async fn when(mut self, wanted: impl Fn(Idle) -> bool) -> Idle {
        let asked = self
            .0
            .wait_for(|asked| asked.drain.is_some_and(&wanted))
            .await;
        match asked.ok().and_then(|asked| asked.drain) {
            Some(idle) => idle,
            // The switch was dropped, so the worker ends without a drain.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_close_there_is_no_way_back_to_hand_over() {
        let (switch, drain) = DrainSwitch::new();
        assert!(!drain.is_asked());
        switch.start(Idle::HandOver);
        assert_eq!(drain.clone().asked().await, Idle::HandOver);
        switch.start(Idle::Close);
        drain.clone().closing().await;
        switch.start(Idle::HandOver);
        assert_eq!(drain.asked().await, Idle::Close);
    }

    #[tokio::test]
    async fn the_end_of_the_server_is_no_drain() {
        let (switch, drain) = DrainSwitch::new();
        switch.note_stop();
        assert!(drain.0.borrow().is_stopping);
        assert!(!drain.is_asked() && !switch.is_started());
    }

    #[tokio::test]
    async fn a_hand_over_becomes_a_close_after_a_while() {
        let (switch, drain) = DrainSwitch::new();
        let moment = Duration::from_millis(1);
        let mut closing = Box::pin(drain.closing_within(moment));
        let early = timeout(10 * moment, &mut closing).await;
        assert!(early.is_err(), "there is no drain");
        switch.start(Idle::HandOver);
        closing.await;
    }
}

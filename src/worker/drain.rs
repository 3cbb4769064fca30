//! The one-way switch from serving to draining.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::drain::Idle;

/// Turns the switch. Any number of causes may: the master, a signal, the master's death.
#[derive(Clone, Debug)]
pub(crate) struct DrainSwitch(watch::Sender<Option<Idle>>);

/// Sees the switch.
#[derive(Clone, Debug)]
pub(crate) struct Drain(watch::Receiver<Option<Idle>>);

impl DrainSwitch {
    pub(crate) fn new() -> (Self, Drain) {
        let (switch, drain) = watch::channel(None);
        (Self(switch), Drain(drain))
    }

    /// Who is to hand connections over may be told to close them instead, and not the other way.
    pub(crate) fn start(&self, idle: Idle) {
        self.0.send_if_modified(|asked| {
            let news = asked.is_none() || (*asked == Some(Idle::HandOver) && idle == Idle::Close);
            if news {
                *asked = Some(idle);
            }
            news
        });
    }

    pub(crate) fn is_started(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl Drain {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.0.borrow() == Some(Idle::Close)
    }

    /// Resolves when there is a drain, with what is to become of idle connections at that moment.
    pub(crate) async fn asked(self) -> Idle {
        self.when(|_| true).await
    }

    /// Resolves when idle connections are to be closed, or it turns out that they have to be.
    pub(crate) async fn closing(self) {
        self.when(|idle| idle == Idle::Close).await;
    }

    /// As [`Drain::closing`], or so long after the drain began.
    pub(crate) async fn closing_within(self, patience: Duration) {
        self.clone().asked().await;
        // Either is a reason.
        let _: Result<(), Elapsed> = timeout(patience, self.closing()).await;
    }

    async fn when(mut self, wanted: impl Fn(Idle) -> bool) -> Idle {
        let asked = self.0.wait_for(|asked| asked.is_some_and(&wanted)).await;
        match asked.ok().and_then(|asked| *asked) {
            Some(idle) => idle,
            // The switch is gone unturned: the worker ends otherwise, and nobody drains it.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_to_be_closed_is_not_handed_over_after_all() {
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
    async fn what_is_handed_over_is_closed_in_the_end() {
        let (switch, drain) = DrainSwitch::new();
        let moment = Duration::from_millis(1);
        let mut closing = Box::pin(drain.closing_within(moment));
        let early = timeout(10 * moment, &mut closing).await;
        assert!(early.is_err(), "there is no drain");
        switch.start(Idle::HandOver);
        closing.await;
    }
}

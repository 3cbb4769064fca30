//! The one-way switch from serving to draining.

use tokio::sync::watch;

/// Turns the switch. Any number of causes may: the master, a signal, the master's death.
#[derive(Clone, Debug)]
pub(crate) struct DrainSwitch(watch::Sender<bool>);

/// Sees the switch.
#[derive(Clone, Debug)]
pub(crate) struct Drain(watch::Receiver<bool>);

impl DrainSwitch {
    pub(crate) fn new() -> (Self, Drain) {
        let (switch, drain) = watch::channel(false);
        (Self(switch), Drain(drain))
    }

    pub(crate) fn turn(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    pub(crate) fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn asked(mut self) {
        if self.0.wait_for(|&asked| asked).await.is_err() {
            // The switch is gone unturned: the worker ends otherwise, and nobody drains it.
            std::future::pending::<()>().await;
        }
    }
}

//! Where notices go: to the hooks of the program, the announce stream and the service manager.

pub(super) mod announce;

use crate::hooks::{Hooks, Notice};
use crate::master::init::Init;
use crate::master::observers::announce::Announcer;

pub(super) struct Observers {
    pub(super) hooks: Box<dyn Hooks>,
    pub(super) announcer: Option<Announcer>,
    pub(super) init: Init,
}

impl Observers {
    pub(super) fn notify(&mut self, notice: &Notice) {
        self.init.notify(notice);
        self.hooks.notice(notice);
        if let Some(announcer) = &mut self.announcer {
            announcer.announce(notice);
        }
    }
}

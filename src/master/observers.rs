//! Where notices go: to the hooks of the program, the announce stream, the service manager and the
//! admin process.

pub(super) mod announce;

use crate::hooks::{Hooks, Notice};
use crate::master::admin::{self, Admin};
use crate::master::init::Init;
use crate::master::observers::announce::Announcer;
use crate::status::{History, Operations};

/// The version of notices as JSON. A new field does not change it.
const VERSION: u32 = 1;

pub(super) struct Observers {
    pub(super) hooks: Box<dyn Hooks>,
    pub(super) announcer: Option<Announcer>,
    pub(super) init: Init,
    pub(super) history: History,
    /// The commands of operators.
    pub(super) operations: Operations,
    /// `None` if the server has no admin address.
    pub(super) admin: Option<Admin>,
}

impl Observers {
    pub(super) fn notify(&mut self, notice: &Notice) {
        self.init.notify(notice);
        self.hooks.notice(notice);
        let millis = admin::millis();
        self.history.note(notice, millis);
        let operations = self.operations.on_notice(notice);
        if self.admin.is_none() && self.announcer.is_none() {
            return;
        }
        let mut object = notice.to_json();
        object["version"] = VERSION.into();
        if !operations.is_empty() {
            object["operations"] = operations.into();
        }
        if let Some(admin) = &mut self.admin {
            admin.on_notice(&object, millis);
        }
        if let Some(announcer) = &mut self.announcer {
            object["at"] = (millis as f64 / 1000.0).into();
            announcer.announce(&object);
        }
    }
}

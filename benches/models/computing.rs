//! Who keeps all CPUs busy when handlers compute and do not yield?
//!
//! With few connections a fixed split leaves a CPU idle while requests queue behind another: this
//! is what prefork is worst at, and what a runtime that moves tasks is made for.
//!
//! Not measured: handlers that move such work to other threads, as they should when it is long.

use crate::load::Ask;
use crate::question::Question;
use crate::server::COMPUTED;

pub(crate) fn questions() -> Vec<Question> {
    let cases = [
        ("cpu_50us_4", "/cpu/50", 4),
        ("cpu_50us_64", "/cpu/50", 64),
        ("cpu_500us_4", "/cpu/500", 4),
        ("cpu_500us_64", "/cpu/500", 64),
    ];
    cases
        .map(|(name, path, connections)| {
            Question::new(name, connections, Ask::get(path).expecting(COMPUTED))
        })
        .into()
}

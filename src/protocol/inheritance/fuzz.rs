//! Any text as a marker.

use super::*;
use crate::fuzz;

#[test]
fn markers() {
    fuzz::check("protocol-inheritance-markers", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        // The number is this process's in few of them; it must not fail in any.
        let _ = state_of_this_process(&text);
        let Some(marker) = Marker::parse(&text) else {
            let none =
                ProcessRole::decide(Some(&text), Pid::from_raw(1), |_| Some(Pid::from_raw(1)));
            assert_eq!(none, ProcessRole::Master { nesting: 0 });
            return;
        };
        let encoded = marker.encode();
        assert_eq!(Marker::parse(&encoded).as_ref(), Some(&marker));
        let own = [
            Some(marker.channel),
            Some(marker.stats),
            marker.ticket_keys,
            marker.tls_files,
        ];
        let mut fds = own
            .into_iter()
            .flatten()
            .chain(marker.listeners.iter().map(|it| it.0));
        assert!(fds.all(|fd| fd > 2), "{marker:?}");

        let maker = marker.master;
        let role = ProcessRole::decide(Some(&text), maker, |_| Some(maker));
        assert_eq!(role, ProcessRole::Worker(marker.clone()));
        let stranger = ProcessRole::decide(Some(&text), maker, |_| None);
        let nesting = marker.nesting + 1;
        assert_eq!(stranger, ProcessRole::Master { nesting });
    });
}

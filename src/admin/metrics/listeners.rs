//! The queues of listeners, and how long certificates last.

use crate::admin::metrics::text::{Text, label};
use crate::admin::view::View;
use crate::protocol::admin::AcceptQueue;

pub(super) fn listeners(text: &mut Text, view: &View) {
    let labels = |queue: &AcceptQueue| {
        let address = label("address", &queue.address.to_string());
        match queue.slot {
            Some(slot) => format!("{address},slot=\"{slot}\""),
            None => address,
        }
    };
    let queues = view.queues().iter();
    text.gauge(
        "prefork_accept_queue_connections",
        "Connections that wait in the queue of a TCP listener",
        queues
            .clone()
            .map(|queue| (labels(queue), f64::from(queue.connections))),
    );
    text.gauge(
        "prefork_accept_queue_max",
        "How many connections may wait in the queue",
        queues.map(|queue| (labels(queue), f64::from(queue.max))),
    );
    let certificates = view.certificates().iter().enumerate();
    text.gauge(
        "prefork_tls_certificate_end_timestamp_seconds",
        "When a certificate ends, in seconds after 1970",
        certificates.map(|(at, (name, end))| {
            let labels = format!("certificate=\"{at}\",{}", label("name", name));
            (labels, *end as f64)
        }),
    );
}

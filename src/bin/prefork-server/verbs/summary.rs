//! What the verbs show to a person: the state of a server, and its notices.

use serde_json::Value;

/// A few lines for a person.
pub(super) fn summary(status: &Value) -> String {
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let addresses: Vec<_> = addresses.map(text).collect();
    let totals = &status["totals"];
    let mut lines = format!(
        "{} ({})\n  master    pid {}\n  addresses {}\n  workers   {}, generation {}\n  so far    \
         {} requests on {} connections,\n            {} responses 5xx, p99 {:.1} ms\n\n",
        text(&status["state"]),
        text(&status["why"]),
        status["pid"],
        addresses.join(" "),
        status["workers"],
        status["generation"],
        totals["requests"],
        totals["connections"],
        totals["responses"][4],
        totals["latency_p99"].as_f64().unwrap_or_default() * 1000.0,
    );
    lines.push_str("  slot  generation      pid  state     connections  under way\n");
    for slot in slots(status) {
        if workers(slot).is_empty() {
            lines.push_str(&without_worker(slot));
        }
        for worker in workers(slot) {
            lines.push_str(&format!(
                "  {:>4}  {:>10}  {:>7}  {:<8}  {:>11}  {:>9}\n",
                text(&worker["slot"]),
                text(&worker["generation"]),
                text(&worker["pid"]),
                text(&worker["state"]),
                text(&worker["connections"]),
                text(&worker["requests"]),
            ));
        }
    }
    lines
}

/// The line of a slot that has no worker.
fn without_worker(slot: &Value) -> String {
    let mut line = format!(
        "  {:>4}  {:>10}  {:>7}  none",
        text(&slot["slot"]),
        "-",
        "-"
    );
    if let Some(by) = slot["adopted_by"].as_u64() {
        line.push_str(&format!("; slot {by} accepts"));
    }
    if slot["backing_off"] == true {
        line.push_str("; waits after crashes");
    }
    line + "\n"
}

/// A notice as a line for a person: its time, its name, and what else it says.
pub(super) fn plain(event: &str) -> String {
    let Ok(Value::Object(mut notice)) = serde_json::from_str(event) else {
        return format!("{event}\n");
    };
    let at = notice
        .remove("at")
        .and_then(|at| at.as_f64())
        .unwrap_or_default();
    let at = jiff::Timestamp::from_millisecond((at * 1000.0) as i64).unwrap_or_default();
    let name = notice.remove("notice").unwrap_or_default();
    let mut line = format!("{at:.3} {}", name.as_str().unwrap_or_default());
    for (field, value) in notice {
        line.push_str(&format!(" {field}={value}"));
    }
    line + "\n"
}

pub(super) fn slots(status: &Value) -> impl Iterator<Item = &Value> {
    status["slots"].as_array().into_iter().flatten()
}

/// The workers of a slot.
pub(super) fn workers(slot: &Value) -> &[Value] {
    slot["workers"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_has_each_slot_and_fits_a_terminal() {
        let most = u64::MAX;
        let worker = json!({
            "slot": 1023, "generation": u32::MAX, "pid": 4_194_304, "state": "starting",
            "connections": u32::MAX, "requests": u32::MAX,
        });
        let totals = json!({
            "requests": most, "connections": most, "responses": [0, 0, 0, 0, most],
            "latency_p99": 65.0,
        });
        let status = json!({
            "state": "reloading", "why": "ready", "totals": totals,
            "slots": [
                { "slot": 1, "workers": [], "adopted_by": 1023, "backing_off": true },
                { "slot": 2, "workers": [], "adopted_by": null, "backing_off": false },
                { "slot": 1023, "workers": [worker], "adopted_by": null, "backing_off": false },
            ],
        });
        let summary = summary(&status);
        let rows: Vec<_> = summary.lines().rev().take(3).collect();
        assert!(rows[0].ends_with("4294967295"), "{summary}");
        assert!(
            rows[1].ends_with("     2           -        -  none"),
            "{summary}"
        );
        let why = "none; slot 1023 accepts; waits after crashes";
        assert!(rows[2].ends_with(why), "{summary}");
        assert!(summary.lines().all(|line| line.len() <= 80), "{summary}");
    }
}

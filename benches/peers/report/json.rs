//! Everything, round by round, so that two runs can be compared.

use serde_json::{Map, Value, json};

use super::Results;
use crate::series::{FLOOR, OURS, Row, Series};

pub(super) fn of(results: &Results) -> serde_json::Result<String> {
    let facts = results.facts.0.iter();
    let facts: Map<_, _> = facts
        .map(|(name, fact)| ((*name).to_owned(), fact.clone().into()))
        .collect();
    let scale = &results.scale;
    let all = json!({
        "facts": facts,
        "scale": {
            "rounds": scale.rounds.0,
            "turn_ms": scale.turn.as_millis() as u64,
            "idle_connections": scale.idle,
            "slow_clients": scale.crowd,
            "rates": scale.rates,
            "at_a_rate_ms": scale.at_a_rate.as_millis() as u64,
            "in_memory_requests": scale.requests,
        },
        "series": results.all().map(series).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&all)
}

fn series(series: &Series) -> Value {
    json!({
        "key": series.key,
        "title": series.title,
        "unit": series.unit.text(),
        "rows": series.rows.iter().map(|it| row(series, it)).collect::<Vec<_>>(),
    })
}

fn row(series: &Series, row: &Row) -> Value {
    let ours_by_it = series.row(OURS).and_then(|ours| ours.ratio(row));
    let it_by_floor = series.row(FLOOR).and_then(|floor| row.ratio(floor));
    json!({
        "name": row.name,
        "median": row.median(),
        "rounds": row.rounds,
        "ours_by_it": ours_by_it.map(|it| it.median),
        "it_by_floor": it_by_floor.map(|it| it.median),
        "failures": row.failures,
        "trouble": row.trouble,
    })
}

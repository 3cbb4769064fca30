//! The file's format, both ways.

use serde_json::{Value, json};

use super::{Case, Machine, Metric, Results, Round};

pub(super) fn value(results: &Results) -> Value {
    json!({
        "commit": results.commit,
        "machine": {
            "cpu": results.machine.cpu,
            "cores": results.machine.cores,
            "memory_mib": results.machine.memory_mib,
            "kernel": results.machine.kernel,
            "load_average": results.machine.load_average,
            "servers_on_cpus": results.machine.servers_on_cpus,
        },
        "cases": results.cases.iter().map(case_value).collect::<Vec<_>>(),
    })
}

fn case_value(case: &Case) -> Value {
    json!({
        "question": case.question,
        "server": case.server,
        "date": case.date,
        "workers": case.workers,
        "connections": case.connections,
        "answer_bytes": case.answer_bytes,
        "answered": case.answered,
        "open_rate": case.open_rate,
        "failures": case.failures,
        "spread": case.spread,
        "rounds": case.rounds.iter().map(round_value).collect::<Vec<_>>(),
    })
}

fn round_value(round: &Round) -> Value {
    let figures = Metric::ALL.into_iter();
    let figures = figures.filter_map(|metric| Some((metric, round.get(metric)?)));
    figures
        .map(|(metric, figure)| (metric.name().to_owned(), json!(figure)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// `None` if this is something else.
pub(super) fn results(value: &Value) -> Option<Results> {
    let machine = &value["machine"];
    let cases = value["cases"].as_array()?.iter();
    Some(Results {
        commit: text(&value["commit"])?,
        machine: Machine {
            cpu: text(&machine["cpu"])?,
            cores: count(&machine["cores"])?,
            memory_mib: machine["memory_mib"].as_u64()?,
            kernel: text(&machine["kernel"])?,
            load_average: text(&machine["load_average"])?,
            servers_on_cpus: text(&machine["servers_on_cpus"]),
        },
        cases: cases.map(case).collect::<Option<_>>()?,
    })
}

fn case(value: &Value) -> Option<Case> {
    let failures = value["failures"].as_object()?.iter();
    let spread = value["spread"].as_array()?.iter();
    let rounds = value["rounds"].as_array()?.iter();
    Some(Case {
        question: text(&value["question"])?,
        server: text(&value["server"])?,
        date: text(&value["date"])?,
        workers: count(&value["workers"])?,
        connections: count(&value["connections"])?,
        answer_bytes: count(&value["answer_bytes"])?,
        answered: value["answered"].as_u64()?,
        open_rate: value["open_rate"].as_f64()?,
        failures: failures
            .map(|(kind, count)| Some((kind.clone(), count.as_u64()?)))
            .collect::<Option<_>>()?,
        spread: spread
            .map(|round| round.as_array()?.iter().map(Value::as_u64).collect())
            .collect::<Option<_>>()?,
        rounds: rounds.map(round).collect(),
    })
}

fn round(value: &Value) -> Round {
    let mut round = Round::default();
    for metric in Metric::ALL {
        if let Some(figure) = value[metric.name()].as_f64() {
            round.set(metric, figure);
        }
    }
    round
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| count.try_into().ok())
}

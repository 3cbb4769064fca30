//! The benches' results: what is written is read again, and ratios are made of the right rounds.

#![allow(
    clippy::unwrap_used,
    reason = "a test is over when something goes wrong"
)]

#[expect(
    dead_code,
    unused_imports,
    reason = "the benches take what is not needed here"
)]
#[path = "../benches/support/results/mod.rs"]
mod results;

use std::fs;

use self::results::{Case, Machine, Metric, Results, Round, Sample, markdown};

/// A case with these CPU times, round by round.
fn case(server: &str, micros: &[f64]) -> Case {
    let rounds = micros.iter().map(|&micros| {
        let mut round = Round::default();
        round.set(Metric::Cpu, micros);
        round
    });
    Case {
        question: "churn_64".into(),
        server: server.into(),
        date: "2026-11-21T19:40:54Z".into(),
        workers: 2,
        connections: 64,
        answer_bytes: 115,
        answered: 1000,
        open_rate: 500.5,
        failures: [("reset".to_owned(), 3)].into(),
        spread: vec![vec![16, 48], vec![32, 32]],
        rounds: rounds.collect(),
    }
}

fn results(cases: Vec<Case>) -> Results {
    Results {
        commit: "48da937".into(),
        machine: Machine::this_one(),
        cases,
    }
}

#[test]
fn what_is_written_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a/1"), directory.path().join("a/2"));
    results(vec![
        case("prefork", &[1.5, 2.5]),
        case("multi_thread", &[]),
    ])
    .write(&first)
    .unwrap();
    let read = Results::read(&first).unwrap();
    read.write(&second).unwrap();
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let read = read.find("churn_64", "prefork").unwrap();
    assert_eq!(read.sample(Metric::Cpu).unwrap().median(), 2.0);
    assert!(read.sample(Metric::P99).is_none());
    assert_eq!((read.failed(), read.spread[0][1]), (3, 48));
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other");
    fs::write(&path, r#"{"commit": "48da937", "cases": []}"#).unwrap();
    assert!(Results::read(&path).is_err(), "there is no machine");
}

#[test]
fn figures_replace_older_ones_of_the_same_case_only() {
    let mut results = results(vec![case("prefork", &[1.0]), case("multi_thread", &[2.0])]);
    results.put(case("prefork", &[3.0]));
    results.put(case("prefork_shared", &[4.0]));
    let servers: Vec<_> = results.cases.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(servers, ["prefork", "multi_thread", "prefork_shared"]);
    let sample = results.cases[0].sample(Metric::Cpu).unwrap();
    assert_eq!(sample.median(), 3.0);
    assert_eq!(results.questions(), ["churn_64"]);
}

/// In each round both servers met the same machine: twice as slow in the second here.
#[test]
fn ratios_are_made_within_a_round() {
    let (ours, theirs) = (
        case("prefork", &[1.0, 2.0]),
        case("multi_thread", &[2.0, 4.0]),
    );
    let ratios = ours.ratios(&theirs, Metric::Cpu).unwrap();
    assert_eq!((ratios.least(), ratios.most()), (0.5, 0.5));
    let table = markdown(&[&ours, &theirs], "multi_thread");
    assert!(
        table.contains("| prefork | - | - | 1.50 | 0.50 (0.50-0.50) |"),
        "{table}"
    );
    assert!(table.contains("| 62 % (50-75) |"), "{table}");
    assert!(table.contains("| 3 reset |"), "{table}");
}

#[test]
fn rounds_of_different_runs_are_all_paired() {
    let sample = |figures: &[f64]| Sample::new(figures.iter().copied()).unwrap();
    let ratios = sample(&[2.0, 4.0]).by(&sample(&[1.0, 2.0])).unwrap();
    assert_eq!(
        (ratios.least(), ratios.median(), ratios.most()),
        (1.0, 2.0, 4.0)
    );
    let inner = sample(&(0..20).map(f64::from).collect::<Vec<_>>()).inner();
    assert_eq!((inner.least(), inner.most()), (2.0, 17.0));
}

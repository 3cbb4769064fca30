//! The benches' results: what is written is read again, and ratios are made of the right rounds.

#![allow(
    clippy::unwrap_used,
    reason = "a test is over when something goes wrong"
)]

#[path = "../benches/results/columns.rs"]
mod columns;
#[path = "../benches/connections/limits.rs"]
#[allow(dead_code, reason = "the bench uses all of it")]
mod limits;
#[path = "../benches/support/mod.rs"]
mod support;

use std::fs;

use self::columns::{BUSIEST, CPU, P99};
use self::limits::{Limits, Plan};
use self::support::process::Trouble;
use self::support::report::{Results, Round, Row, Sample, Sheet, Table, written};
use self::support::turns::{Turn, check, in_turn};

/// A row with these CPU times, round by round.
fn row(server: &str, micros: &[f64]) -> Row {
    let round = |(at, &micros): (usize, &f64)| {
        let busiest = [75.0, 50.0][at % 2];
        Round::from([(CPU.to_owned(), micros), (BUSIEST.to_owned(), busiest)])
    };
    Row {
        rounds: micros.iter().enumerate().map(round).collect(),
        failures: [("reset".to_owned(), 3)].into(),
        ..Row::of(server)
    }
}

fn sheet(rows: Vec<Row>) -> Sheet {
    Sheet::new("churn_64", "64 connections".into(), rows)
}

fn results(sheets: Vec<Sheet>) -> Results {
    let mut results = Results::new(vec![("CPU".into(), "two".into())]);
    results.sheets = sheets;
    results
}

#[test]
fn what_is_written_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a/1"), directory.path().join("a/2"));
    let rows = vec![row("prefork", &[1.5, 2.5]), row("multi_thread", &[])];
    results(vec![sheet(rows)]).write(&first).unwrap();
    let read = Results::read(&first).unwrap();
    read.write(&second).unwrap();
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    let read = read.sheet("churn_64").unwrap().row("prefork").unwrap();
    assert_eq!(read.median(CPU), Some(2.0));
    assert!(read.sample(P99).is_none());
    assert_eq!((read.failed(), read.rounds[0][BUSIEST]), (3, 75.0));
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other");
    fs::write(&path, r#"{"commit": "48da937", "sheets": []}"#).unwrap();
    assert!(Results::read(&path).is_err(), "there are no facts");
}

#[test]
fn figures_replace_older_ones_of_the_same_case_only() {
    let mut results = results(vec![sheet(vec![
        row("prefork", &[1.0]),
        row("multi_thread", &[2.0]),
    ])]);
    results.put(sheet(vec![row("prefork", &[3.0])]));
    results.put(sheet(vec![row("prefork_shared", &[4.0])]));
    let [sheet] = results.sheets.as_slice() else {
        panic!("{} sheets", results.sheets.len());
    };
    let servers: Vec<_> = sheet.rows.iter().map(|it| it.server.as_str()).collect();
    assert_eq!(servers, ["prefork", "multi_thread", "prefork_shared"]);
    assert_eq!(sheet.rows[0].median(CPU), Some(3.0));
}

/// In each round both servers met the same machine: twice as slow in the second here.
#[test]
fn ratios_are_made_within_a_round() {
    let (ours, theirs) = (
        row("prefork", &[1.0, 2.0]),
        row("multi_thread", &[2.0, 4.0]),
    );
    let ratios = ours.ratios(&theirs, CPU).unwrap();
    assert_eq!((ratios.least(), ratios.most()), (0.5, 0.5));
    let table = columns::table(&sheet(vec![ours, theirs])).as_markdown("prefork");
    assert!(
        table.contains("| **prefork** | - | - | 1.50 | 0.50 (0.50-0.50) |"),
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

#[test]
fn servers_take_turns_and_a_stuck_one_has_a_second_chance() {
    let mut taken = Vec::new();
    let mut servers = [("a", 0), ("b", 0), ("c", 0)];
    let rows = in_turn(&mut servers, 3, |name, turns| {
        *turns += 1;
        taken.push(format!("{name}{turns}"));
        let mut turn = Turn::default();
        turn.set(CPU, f64::from(*turns));
        match name {
            "b" => Err(Trouble::Stuck("so".into())),
            "c" => Err(Trouble::NotSupported("never".into())),
            _ => Ok(turn),
        }
    });
    assert_eq!(taken, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    assert_eq!(rows[0].median(CPU), Some(2.0));
    assert!(rows.iter().all(|row| row.rounds.len() == 3));
    assert!(check("q", &rows[..1]).is_ok());
    assert!(check("q", &rows[1..2]).is_err(), "its rounds are empty");
    assert!(
        check("q", &[row("reset", &[1.0])]).is_err(),
        "requests failed"
    );
}

#[test]
fn tables_line_up_and_say_why_cells_are_missing() {
    let mut table = Table::empty("what:", &["server", "us"]);
    table.push("one", Ok::<_, &str>(&["1.00".to_owned()]));
    table.push("twelve", Err("not found\nsecond line"));
    assert_eq!(
        table.for_a_terminal(),
        "what:\nserver    us\none     1.00\ntwelve        not found\n"
    );
    assert_eq!(
        table.as_markdown("one"),
        "| server | us |\n|---|---:|\n| **one** | 1.00 |\n| twelve (not found) |  |\n"
    );
    let figures = [0.5, -12.0, 123.4, 12_345.0, -1_234_567.0].map(written);
    assert_eq!(figures, ["0.50", "-12.0", "123", "12,345", "-1,234,567"]);
}

/// The bench of connections says which limit allows fewer than are wanted.
#[test]
fn a_plan_names_the_limit_that_binds() {
    let limits = |files, memory| Limits {
        of_process: 20_000,
        files,
        memory,
    };
    let plan = |files, memory| Plan::of(1_000_000, 10_000, &limits(files, memory));
    let whole = plan(3_000_000, 20 << 30);
    assert_eq!((whole.connections, whole.said), (1_000_000, None));
    assert_eq!((whole.clients, whole.workers), (63, 67));
    let few = plan(500_000, 20 << 30);
    let said = "fs.file-max allows 250,000 connections of 1,000,000";
    assert_eq!(
        (few.connections, few.said.as_deref()),
        (250_000, Some(said))
    );
    assert_eq!(few.shares().sum::<usize>(), 250_000);
    let small = plan(3_000_000, 1_000_000_000);
    let said = "memory allows 100,000 connections of 1,000,000";
    assert_eq!(small.said.as_deref(), Some(said));
}

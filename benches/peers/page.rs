//! The tables and pictures, in the terminal and as a page.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use crate::options::{Options, Scale};
use crate::peer::{FLOOR, OURS};
use crate::programs::target;
use crate::question::{Figure, Question};
use crate::report::{Bar, Column, Line, Lines, Look, Results, Row, Sheet, Table, bars, written};
use crate::turns::{QUANTILES, latency_key as key};

/// Where the page is kept, from the package on.
const KEPT: &str = "benches/peers";

const HEAD: &str = "\
# prefork-server beside other servers

Written by `cargo bench --bench peers -- --write`; the next run overwrites it.

Every server has one worker or thread, pinned to one CPU; the load is pinned to another. All answer
with `Hello, World!` as `text/plain`, each with the other headers it sends by default. They take
turns, each on a newly started server, and a ratio is the median of the ratios within each round:

- **ours / it** below 1 means that prefork-server needs less than that server.
- **it / floor** is how much a server adds to what any server on epoll must do. The floor is one
  `recv(2)` and one `send(2)` of fixed bytes, without parsing.

CPU is user and system time of all processes of a server. Latency counts from the moment a request
was meant to be sent, so a server that cannot keep up with a rate is charged with its queue. Memory
is the proportional set size of all processes above that of the same server without connections;
what the kernel holds for a connection is the same for all and left out. nginx has room for 16,384
connections before the first one comes, which a table of its own shows. In memory there is no
kernel, and the client never waits: the way of fasthttp's own benchmark. hyper and axum are as they
come (`pipeline_flush` is off), and accept on their runtime's own threads. The head of
[the bench](main.rs) says what else is in a case.
";

struct Picture {
    file: String,
    title: String,
    svg: String,
}

pub(crate) fn publish(
    results: &Results,
    scale: &Scale,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let questions = options.questions();
    let sheets: Vec<_> = questions.into_iter().zip(&results.sheets).collect();
    for table in tables(&sheets, scale) {
        println!("{}", table.for_a_terminal());
    }
    for (name, fact) in &results.facts {
        println!("{name:<28} {fact}");
    }
    let target = target();
    let file = target.join("results.json");
    results.write(&file)?;
    println!("\n{}", file.display());
    write_page(results, &sheets, scale, &target)?;
    if options.write {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT);
        write_page(results, &sheets, scale, &kept)?;
    }
    Ok(())
}

/// The page and its pictures. Those of an earlier run that had other cases do not stay.
fn write_page(
    results: &Results,
    sheets: &[(Question, &Sheet)],
    scale: &Scale,
    dir: &Path,
) -> io::Result<()> {
    let shelf = dir.join("pictures");
    match fs::remove_dir_all(&shelf) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&shelf)?,
    }
    let mut page = format!(
        "{HEAD}\nRounds: {} of {} ms for CPU, {} for memory and latency.\n\n| | |\n|---|---|\n",
        Question::Cost.rounds(scale),
        scale.turn.as_millis(),
        Question::Latency.rounds(scale),
    );
    for (name, fact) in &results.facts {
        page += &format!("| {name} | {fact} |\n");
    }
    for picture in pictures(sheets, scale) {
        fs::write(shelf.join(&picture.file), &picture.svg)?;
        page += &format!("\n![{}](pictures/{})\n", picture.title, picture.file);
    }
    for table in tables(sheets, scale) {
        page += &format!("\n## {}\n\n{}", table.title, table.as_markdown(OURS));
    }
    let path = dir.join("RESULTS.md");
    fs::write(&path, page)?;
    println!("{}", path.display());
    Ok(())
}

fn tables(sheets: &[(Question, &Sheet)], scale: &Scale) -> Vec<Table> {
    let tables = sheets.iter().flat_map(|(question, sheet)| {
        let (figures, rows) = (question.figures(scale), &sheet.rows);
        match question {
            Question::Latency => scale
                .rates
                .iter()
                .map(|&rate| of_rate(rate, rows))
                .collect(),
            Question::SlowClients => vec![of_crowds(&sheet.about, &figures, rows)],
            _ => figures
                .iter()
                .map(|figure| of_figure(figure, rows))
                .collect::<Vec<_>>(),
        }
    });
    tables.collect()
}

fn of_figure(figure: &Figure, rows: &[Row]) -> Table {
    let mut columns = vec![
        Column::server(),
        Column::median(figure.unit, &figure.key),
        Column::optional("range", |row| {
            let sample = row.sample(&figure.key)?;
            Some(format!(
                "{}-{}",
                written(sample.least()),
                written(sample.most())
            ))
        }),
    ];
    if figure.is_compared {
        columns.extend(ratios("", rows, &figure.key));
    }
    columns.push(Column::failed());
    Table::new(&*figure.title, &columns, ascending(rows, &figure.key))
}

fn of_rate(rate: u32, rows: &[Row]) -> Table {
    let keys = QUANTILES.map(|(_, name)| key(rate, name));
    let p99 = &keys[QUANTILES.len() - 3];
    let mut columns = vec![Column::server()];
    let quantiles = QUANTILES.iter().zip(&keys);
    columns.extend(quantiles.map(|((_, name), key)| Column::median(*name, key)));
    columns.extend(ratios("p99, ", rows, p99));
    columns.push(Column::failed());
    let title = format!(
        "latency in us at {} requests per second",
        written(rate.into())
    );
    Table::new(title, &columns, ascending(rows, p99))
}

fn of_crowds(title: &str, figures: &[Figure], rows: &[Row]) -> Table {
    let mut columns = vec![Column::server()];
    columns.extend(figures.iter().map(|it| Column::median(&*it.title, &it.key)));
    columns.push(Column::failed());
    Table::new(title, &columns, ascending(rows, &figures[0].key))
}

/// To ours and to the floor, as far as they are there.
fn ratios<'a>(
    before: &str,
    rows: &'a [Row],
    figure: &'a str,
) -> impl Iterator<Item = Column<'a>> + use<'a> {
    let row = |name| rows.iter().find(|row| row.server == name);
    let ours = row(OURS).map(|ours| {
        Column::optional(format!("{before}ours / it (range)"), move |row| {
            Some(ours.ratios(row, figure)?.to_string())
        })
    });
    let floor = row(FLOOR).map(|floor| {
        Column::optional(format!("{before}it / floor (range)"), move |row| {
            Some(row.ratios(floor, figure)?.to_string())
        })
    });
    ours.into_iter().chain(floor)
}

/// Those without the figure last.
fn ascending<'a>(rows: &'a [Row], figure: &str) -> Vec<&'a Row> {
    let mut rows: Vec<_> = rows.iter().collect();
    let median = |row: &Row| row.median(figure).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| median(a).total_cmp(&median(b)));
    rows
}

fn pictures(sheets: &[(Question, &Sheet)], scale: &Scale) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for (question, sheet) in sheets {
        match question {
            Question::Latency => pictures.extend(of_latency(scale, &sheet.rows)),
            Question::SlowClients => {}
            _ => {
                let figures = question.figures(scale).into_iter();
                let compared = figures.filter(|figure| figure.is_compared);
                pictures.extend(compared.map(|figure| picture(figure, &sheet.rows)));
            }
        }
    }
    pictures
}

fn picture(figure: Figure, rows: &[Row]) -> Picture {
    let bar = |row| {
        let figure = Row::median(row, &figure.key)?;
        let (name, look) = (row.server.as_str(), look(row));
        Some(Bar { name, look, figure })
    };
    let all: Vec<_> = ascending(rows, &figure.key)
        .into_iter()
        .filter_map(bar)
        .collect();
    Picture {
        file: format!("{}.svg", figure.key),
        svg: bars(&figure.title, figure.unit, &all),
        title: figure.title,
    }
}

/// One in a hundred responses at all rates, and all quantiles at each rate.
fn of_latency(scale: &Scale, rows: &[Row]) -> Vec<Picture> {
    let rates = scale.rates.iter();
    let by_rate = rates
        .clone()
        .map(|&rate| (written(rate.into()), key(rate, "p99")));
    let across = "requests per second";
    let mut all = vec![of_lines(
        "p99 latency by rate",
        "by_rate",
        across,
        by_rate,
        rows,
    )];
    all.extend(rates.map(|&rate| {
        let title = format!("latency at {} requests per second", written(rate.into()));
        let places = QUANTILES.map(|(_, name)| (name.to_owned(), key(rate, name)));
        let across = "share of the requests that took no longer";
        of_lines(&title, &rate.to_string(), across, places.into_iter(), rows)
    }));
    all
}

/// `places` have a name and the key of a figure.
fn of_lines(
    title: &str,
    name: &str,
    across: &str,
    places: impl Iterator<Item = (String, String)>,
    rows: &[Row],
) -> Picture {
    let (places, keys): (Vec<_>, Vec<_>) = places.unzip();
    let lines = rows.iter().map(|row| Line {
        name: &row.server,
        look: look(row),
        figures: keys.iter().map(|key| row.median(key)).collect(),
    });
    let picture = Lines {
        title,
        across,
        up: "us, logarithmic",
        places,
        lines: lines.collect(),
    };
    Picture {
        file: format!("latency_{name}.svg"),
        title: title.to_owned(),
        svg: picture.draw(),
    }
}

fn look(row: &Row) -> Look {
    match row.server.as_str() {
        OURS => Look::Ours,
        FLOOR => Look::Floor,
        _ => Look::Plain,
    }
}

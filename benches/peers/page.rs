//! The tables and pictures, in the terminal and as a page.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use crate::options::{Options, Scale};
use crate::peer::{FLOOR, OURS};
use crate::programs::target;
use crate::question::{Question, Shown};
use crate::report::{Bar, Cell, Look, Results, Row, Sample, Table, bars, written};

/// Where the page is kept, from the package on.
const KEPT: &str = "benches/peers";

const HEAD: &str = include_str!("templates/RESULTS.md.txt");

/// A table, and a picture of its main column.
struct Section {
    table: Table,
    /// The name of the file, and the picture.
    picture: Option<(String, String)>,
}

pub(crate) fn publish(
    results: &Results,
    scale: &Scale,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let questions = options.questions().into_iter().zip(&results.sheets);
    let sections: Vec<_> = questions
        .flat_map(|(question, sheet)| {
            let tables = question.asked(scale).tables;
            let section = |shown: Shown| section(&shown, &sheet.rows);
            tables.into_iter().map(section).collect::<Vec<_>>()
        })
        .collect();
    for section in &sections {
        println!("{}", section.table.for_a_terminal());
    }
    for (name, fact) in &results.facts {
        println!("{name:<28} {fact}");
    }
    let target = target();
    let file = target.join("results.json");
    results.write(&file)?;
    println!("\n{}", file.display());
    write_page(results, &sections, scale, &target)?;
    if options.write {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT);
        write_page(results, &sections, scale, &kept)?;
    }
    Ok(())
}

/// The page and its pictures. Those of an earlier run that had other cases do not stay.
fn write_page(
    results: &Results,
    sections: &[Section],
    scale: &Scale,
    dir: &Path,
) -> io::Result<()> {
    let pictures = dir.join("pictures");
    match fs::remove_dir_all(&pictures) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&pictures)?,
    }
    let mut page = format!(
        "{HEAD}\nRounds: {} of {} ms for CPU, {} for memory and latency.\n\n| | |\n|---|---|\n",
        Question::Cost.asked(scale).rounds,
        scale.turn.as_millis(),
        Question::Latency.asked(scale).rounds,
    );
    for (name, fact) in &results.facts {
        page += &format!("| {name} | {fact} |\n");
    }
    for Section { table, picture } in sections {
        page += &format!("\n## {}\n\n", table.title);
        if let Some((file, svg)) = picture {
            fs::write(pictures.join(file), svg)?;
            page += &format!("![{}](pictures/{file})\n\n", table.title);
        }
        page += &table.as_markdown(OURS);
    }
    let path = dir.join("RESULTS.md");
    fs::write(&path, page)?;
    println!("{}", path.display());
    Ok(())
}

fn section(shown: &Shown, rows: &[Row]) -> Section {
    let (head, figure) = &shown.columns[shown.main];
    let mut rows: Vec<_> = rows.iter().collect();
    // Those without the figure last.
    let median = |row: &Row| row.median(figure).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| median(a).total_cmp(&median(b)));

    let is_alone = shown.columns.len() == 1;
    let named = |name: &str| rows.iter().copied().find(|row| row.server == name);
    let (ours, floor) = (named(OURS), named(FLOOR));
    let table = Table::of_rows(&shown.title, rows.iter().copied(), |row| {
        let medians = shown.columns.iter();
        let median =
            |(head, figure): &(String, String)| (head.clone(), row.median(figure).map(written));
        let mut cells: Vec<Cell> = medians.map(median).collect();
        if is_alone {
            let range = row.sample(figure).map(|sample| {
                let (least, most) = (written(sample.least()), written(sample.most()));
                format!("{least}-{most}")
            });
            cells.push(("range".to_owned(), range));
        }
        // To ours and to the floor, as far as they are there.
        let before = if is_alone { "" } else { &format!("{head}, ") };
        let mut push = |head: &str, ratios: Option<Sample>| {
            let ratios = ratios.map(|ratios| ratios.to_string());
            cells.push((format!("{before}{head} (range)"), ratios));
        };
        if let Some(ours) = ours.filter(|_| shown.is_compared) {
            push("ours / it", ours.ratios(row, figure));
        }
        if let Some(floor) = floor.filter(|_| shown.is_compared) {
            push("it / floor", row.ratios(floor, figure));
        }
        cells
    });
    let picture = shown.is_compared.then(|| {
        let unit = if is_alone {
            head
        } else {
            &format!("{head}, us")
        };
        let all: Vec<_> = rows.iter().filter_map(|row| bar(row, figure)).collect();
        (format!("{figure}.svg"), bars(&shown.title, unit, &all))
    });
    Section { table, picture }
}

fn bar<'a>(row: &'a Row, figure: &str) -> Option<Bar<'a>> {
    let look = match row.server.as_str() {
        OURS => Look::Ours,
        FLOOR => Look::Floor,
        _ => Look::Plain,
    };
    Some(Bar {
        name: &row.server,
        look,
        figure: row.median(figure)?,
    })
}

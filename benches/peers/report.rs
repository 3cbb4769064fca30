//! What is told of a run: tables in the terminal, everything as JSON, a page, and pictures.

mod bars;
mod json;
mod lines;
mod page;
mod pictures;
mod svg;
mod table;

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use crate::command_line::{Options, Scale};
use crate::facts::Facts;
use crate::latency::Curve;
use crate::programs::target;
use crate::series::Series;

/// Where the page is kept, from the package on.
const KEPT: &str = "benches/peers";

/// All that was found out.
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) scale: Scale,
    pub(crate) cost: Vec<Series>,
    pub(crate) handshakes: Vec<Series>,
    pub(crate) idle: Vec<Series>,
    pub(crate) latency: Vec<Curve>,
    /// As [`slow_clients::columns`](crate::slow_clients::columns) has them.
    pub(crate) slow_clients: Vec<Series>,
    pub(crate) in_memory: Vec<Series>,
}

impl Results {
    pub(crate) fn new(facts: Facts, scale: Scale) -> Self {
        Self {
            facts,
            scale,
            cost: Vec::new(),
            handshakes: Vec::new(),
            idle: Vec::new(),
            latency: Vec::new(),
            slow_clients: Vec::new(),
            in_memory: Vec::new(),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Series> {
        let curves = self.latency.iter().flat_map(|curve| &curve.series);
        let cpu = self.cost.iter().chain(&self.handshakes);
        let all = cpu.chain(&self.idle).chain(curves);
        all.chain(&self.slow_clients).chain(&self.in_memory)
    }
}

pub(crate) fn publish(results: &Results, options: &Options) -> Result<(), Box<dyn Error>> {
    for table in table::all(results) {
        println!("\n{}", table.for_a_terminal());
    }
    println!();
    for (name, fact) in &results.facts.0 {
        println!("{name:<28} {fact}");
    }
    let target = target();
    fs::create_dir_all(&target)?;
    let written = target.join("results.json");
    fs::write(&written, json::of(results)?)?;
    println!("\n{}", written.display());
    write_page(results, &target)?;
    if options.write {
        write_page(results, &Path::new(env!("CARGO_MANIFEST_DIR")).join(KEPT))?;
    }
    Ok(())
}

/// The page and its pictures. Those of an earlier run that had other cases do not stay.
fn write_page(results: &Results, dir: &Path) -> io::Result<()> {
    let pictures = pictures::all(results);
    let shelf = dir.join("pictures");
    match fs::remove_dir_all(&shelf) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&shelf)?,
    }
    for picture in &pictures {
        fs::write(shelf.join(&picture.file), &picture.svg)?;
    }
    let path = dir.join("RESULTS.md");
    fs::write(&path, page::of(results, &pictures))?;
    println!("{}", path.display());
    Ok(())
}

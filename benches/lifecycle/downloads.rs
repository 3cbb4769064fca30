//! How many downloads of a large file does a reload cut? 16 clients download it again and again,
//! without a rest, each on a connection that it keeps, and compare each byte.
//!
//! A worker that drains must send the rest of each download, and should then hand over the
//! connection, so that the client need not open another.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fastrand::Rng;

use crate::connection::Exchange;
use crate::contender::{Contender, Contents, Name, Speaks};
use crate::load::{Asks, Load, Manner};
use crate::process::Trouble;
use crate::report::Table;

const CLIENTS: usize = 16;

/// More than what the kernel takes for a connection at once, so that every reload meets downloads
/// of which the server still has to send a part.
const MIB: usize = 32;

/// For the counts of each server.
pub(crate) fn table(reloads: usize) -> Table {
    let title = format!(
        "{reloads} reloads while {CLIENTS} clients download a file of {MIB} MiB again and again, \
         2 workers:"
    );
    Table::empty(title, &["server", "downloads", "cut", "closed after one"])
}

/// As the table's head has them.
pub(crate) fn count(name: Name, reloads: usize) -> Result<[usize; 3], Trouble> {
    let dir = tempfile::tempdir()?;
    let mut contents = vec![0; MIB << 20];
    Rng::with_seed(0).fill(&mut contents);
    let mut file = File::create(dir.path().join("large.bin"))?;
    file.write_all(&contents)?;
    // Ours copies what was written less than a minute ago.
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))?;
    let mut server = name.start_with(Contents::Files(dir.path()), Speaks::Http1, 2)?;
    let download = Exchange::download("/large.bin", Arc::from(contents));
    let client = Manner {
        asks: Asks::Same(download),
        rest_millis: 0,
    };
    let load = Load::start(server.address(), vec![client; CLIENTS])?;
    for number in 0..reloads {
        reload(server.as_mut(), &load, number).inspect_err(|_| eprintln!("{}", server.log()))?;
    }
    let tally = load.finish()?;
    let downloads = usize::try_from(tally.answered).expect("it was counted");
    Ok([downloads, tally.lost.len(), tally.closed])
}

/// One reload, until those that drain are gone and the clients have had further responses.
fn reload(server: &mut dyn Contender, load: &Load, number: usize) -> Result<(), Trouble> {
    server.reload()?;
    // An even number: until those that drain are gone.
    server.settle(2 * number)?;
    load.settle()
}

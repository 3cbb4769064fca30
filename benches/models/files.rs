//! What does a file cost, by its size?
//!
//! 64 connections ask for the same file of 1 KiB, 64 KiB or 1 MiB, which stays in the page cache.
//! Here `prefork` is this package's binary, as it serves a directory, and the other models run
//! tower-http's `ServeDir`, as axum and most others do.
//!
//! Not measured: disks, many files, ranges, conditional requests, compression.

use std::fs;

use tempfile::TempDir;

use crate::load::Ask;
use crate::question::Question;
use crate::server::App;

const FILES: [(&str, &str, usize); 3] = [
    ("file_1kib", "1kib.bin", 1 << 10),
    ("file_64kib", "64kib.bin", 64 << 10),
    ("file_1mib", "1mib.bin", 1 << 20),
];

/// The files. Dropped, they are removed.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        for (_, file, size) in FILES {
            fs::write(directory.path().join(file), content(size)).expect("it is ours");
        }
        Self(directory)
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        let app = App::Files(self.0.path().to_owned());
        FILES
            .map(|(name, file, size)| {
                let ask = Ask::get(&format!("/{file}")).expecting(content(size));
                Question::new(name, 64, ask).of_app(app.clone())
            })
            .into()
    }
}

/// Bytes that differ from their neighbours, so that a part in the wrong place is seen.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

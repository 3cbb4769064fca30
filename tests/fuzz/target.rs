//! Runs a fuzz target with its recorded inputs, with random inputs, and with changed copies of the
//! recorded ones. In a build for libFuzzer it runs the inputs that libFuzzer makes. See the README
//! of the tests.

use std::fmt;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use bolero::ValueGenerator;

/// The number of random inputs in a plain test, and of changed copies.
const RANDOM: usize = 400;

/// The longest random input of a plain test.
const LEN_MAX: usize = 512;

/// At most this number of bytes decides how a recorded input is changed.
const CHANGES_MAX: usize = 32;

/// Checks a property. It must panic if the input breaks it. `name` is the folder of `tests/corpus`
/// that has the target's recorded inputs.
pub(crate) fn check(name: &str, property: impl Fn(&[u8])) {
    // If a property shares state between inputs, it must check that state itself.
    let property = AssertUnwindSafe(property);
    if cfg!(fuzzing) {
        bolero::check!().for_each(|input: &[u8]| (*property)(input));
        return;
    }
    assert_is_of_test(name);
    let recorded = recorded(name);
    for (path, input) in &recorded {
        // The output of a failed test is shown. Its last line names the input.
        println!("{path}");
        property(input);
    }
    println!("random inputs");
    bolero::check!()
        .with_iterations(RANDOM)
        .with_max_len(LEN_MAX)
        .for_each(|input: &[u8]| (*property)(input));
    println!("recorded inputs, altered");
    let changes = bolero::produce::<Vec<u8>>()
        .with()
        .len(0_usize..CHANGES_MAX);
    bolero::check!()
        .with_iterations(RANDOM)
        .with_generator(changes.map_gen(|changes: Vec<u8>| Altered(altered(&recorded, &changes))))
        .for_each(|input: &Altered| (*property)(&input.0));
}

/// `tests/fuzz/run` derives the folder from the name of the test, which its thread has too.
fn assert_is_of_test(name: &str) {
    let thread = std::thread::current();
    if let Some(test) = thread.name().filter(|test| test.contains("fuzz::")) {
        assert_eq!(test.replace("fuzz::", "").replace("::", "-"), name);
    }
}

struct Altered(Vec<u8>);

/// Prints the input as a test would write it.
impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// The recorded inputs and their paths, in the order of their names.
fn recorded(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let entries = fs::read_dir(folder.join(name)).expect("the target has recorded inputs");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name} has no recorded input");
    let read = |path: &Path| fs::read(path).expect("a file");
    paths
        .iter()
        .map(|path| (path.display().to_string(), read(path)))
        .collect()
}

/// A changed copy of a recorded input: bytes are overwritten, removed, doubled, or inserted from
/// another.
fn altered(recorded: &[(String, Vec<u8>)], changes: &[u8]) -> Vec<u8> {
    let mut changes = changes.iter().map(|&byte| usize::from(byte));
    let mut next = |below: usize| {
        let wide = changes.next().unwrap_or(0) << 8 | changes.next().unwrap_or(0);
        wide % below.max(1)
    };
    let mut input = recorded[next(recorded.len())].1.clone();
    for _ in 0..=next(4) {
        let from = next(input.len() + 1);
        let to = input.len().min(from + next(16));
        let piece = input[from..to].to_vec();
        match next(5) {
            0 => drop(input.drain(from..to)),
            1 => drop(input.splice(from..from, piece)),
            2 => input.truncate(from),
            3 => {
                let other = &recorded[next(recorded.len())].1;
                let start = next(other.len() + 1);
                let end = other.len().min(start + next(64));
                input.splice(from..to, other[start..end].iter().copied());
            }
            _ => {
                let byte = next(256) as u8;
                input[from..to].fill(byte);
            }
        }
    }
    input
}

//! `--print-config`: the options with their values.

use std::ffi::OsStr;

use clap::Arg;
use toml::Value;

use super::config::{NOT_IN_FILE, PrintFormat, is_flag, is_repeatable, key};
use super::origin::{Known, Origin};
use crate::one_line::shown;

/// An option with its value.
struct Entry<'a> {
    option: &'a Arg,
    /// Empty if there is no value.
    values: Vec<String>,
    origin: Origin<'a>,
}

/// `listen` is the value of `--listen` if nothing gives one.
pub(super) fn page(known: &Known<'_>, listen: &str, format: PrintFormat) -> Result<String, String> {
    let options = known.command.get_arguments();
    let printed = |option: &&Arg| !NOT_IN_FILE.contains(&option.get_id().as_str());
    let entries = options
        .filter(printed)
        .map(|option| Entry::new(option, known, listen));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    Ok(match format {
        PrintFormat::Table => table(&entries),
        PrintFormat::Toml => entries.iter().map(Entry::toml).collect(),
        PrintFormat::Env => entries.iter().filter_map(Entry::variable).collect(),
        PrintFormat::Args => {
            let arguments = entries.iter().flat_map(Entry::arguments);
            format!("{}\n", arguments.collect::<Vec<_>>().join(" "))
        }
    })
}

impl<'a> Entry<'a> {
    fn new(option: &'a Arg, known: &Known<'a>, listen: &str) -> Result<Self, String> {
        let id = option.get_id().as_str();
        let raw = known.matches.get_raw(id).into_iter().flatten();
        let text = |raw: &OsStr| {
            let text = raw.to_str().map(str::to_owned);
            text.ok_or_else(|| format!("{option}: {} is not UTF-8", raw.display()))
        };
        let mut values = match is_flag(option) {
            // The variable of a flag may be 1, yes or on, which a file cannot have.
            true => vec![known.matches.get_flag(id).to_string()],
            false => raw.map(text).collect::<Result<_, _>>()?,
        };
        if values.is_empty() && id == "listen" {
            values.push(listen.to_owned());
        }
        Ok(Self {
            option,
            values,
            origin: known.origin(option),
        })
    }

    /// A line of the file. What nobody has chosen is a comment.
    fn toml(&self) -> String {
        let comment = match self.origin {
            Origin::Default => "# ",
            _ => "",
        };
        let quoted = |text: &String| Value::String(text.clone()).to_string();
        let value = match &self.values[..] {
            [] => String::new(),
            [flag] if is_flag(self.option) => flag.clone(),
            values if is_repeatable(self.option) => {
                let values: Vec<_> = values.iter().map(quoted).collect();
                format!("[{}]", values.join(", "))
            }
            values => quoted(&values[0]),
        };
        let line = format!("{comment}{} = {value}", key(self.option));
        line.trim_end().to_owned() + "\n"
    }

    /// A line of a file with variables, if the option has one and is chosen.
    fn variable(&self) -> Option<String> {
        let name = self.option.get_env()?.to_str()?;
        let is_chosen = self.origin != Origin::Default;
        let between = self.option.get_value_delimiter().map(String::from);
        let value = self.values.join(&between.unwrap_or_default());
        is_chosen.then(|| format!("{name}={}\n", quote(&value)))
    }

    fn arguments(&self) -> Vec<String> {
        let values = self.values.iter();
        match (self.origin, self.option.get_long()) {
            (Origin::Default, _) => Vec::new(),
            (_, None) => values.map(|value| quote(value)).collect(),
            (_, Some(long)) if is_flag(self.option) => match self.values[..] == ["true"] {
                true => vec![format!("--{long}")],
                false => Vec::new(),
            },
            (_, Some(long)) => values
                .map(|value| format!("--{long}={}", quote(value)))
                .collect(),
        }
    }
}

fn table(entries: &[Entry<'_>]) -> String {
    let rows = entries.iter().map(|entry| {
        let origin = match entry.origin {
            Origin::Default => "default".to_owned(),
            Origin::CommandLine => "command line".to_owned(),
            Origin::Variable => {
                let name = entry.option.get_env().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
            Origin::File(file) => file.to_owned(),
        };
        let value = match entry.values.join(", ") {
            empty if empty.is_empty() => "-".to_owned(),
            value => shown(&value),
        };
        [key(entry.option).to_owned(), value, origin]
    });
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).min(40)
    };
    let (first, second) = (width(0), width(1));
    let lines = rows
        .iter()
        .map(|[key, value, origin]| format!("{key:first$}  {value:second$}  {origin}\n"));
    lines.collect()
}

/// As a word of sh(1).
fn quote(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%[]".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

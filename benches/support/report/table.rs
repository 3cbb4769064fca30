//! Tables, for the terminal and for documents.

use std::fmt::{Display, Write as _};

use super::{Row, written};

/// The head of a column, and what a row has there.
pub(crate) type Cell = (String, Option<String>);

pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    /// Cells, and what is said behind them.
    pub(crate) lines: Vec<(Vec<String>, Option<String>)>,
}

impl Table {
    /// A line for each row: its server, these cells, and the requests that failed. All rows have
    /// cells of the same heads; an empty one is a dash.
    pub(crate) fn of_rows<'a>(
        title: &str,
        rows: impl IntoIterator<Item = &'a Row>,
        cells: impl Fn(&Row) -> Vec<Cell>,
    ) -> Self {
        let mut table = Self::empty(title, &["server"]);
        for row in rows {
            let mut line = vec![row.server.clone()];
            table.head.truncate(1);
            let failed = ("failed".to_owned(), Some(row.failures()));
            for (head, cell) in cells(row).into_iter().chain([failed]) {
                table.head.push(head);
                line.push(cell.unwrap_or_else(|| "-".into()));
            }
            let remark = row.trouble.as_ref().and_then(|it| it.lines().next());
            table.lines.push((line, remark.map(str::to_owned)));
        }
        table
    }

    /// Without lines as yet.
    pub(crate) fn empty(title: impl Into<String>, head: &[&str]) -> Self {
        Self {
            title: title.into(),
            head: head.iter().map(|&text| text.to_owned()).collect(),
            lines: Vec::new(),
        }
    }

    /// A line with these cells, or with the first alone and why there are no others.
    pub(crate) fn push<E: Display>(&mut self, first: &str, cells: Result<&[String], E>) {
        let mut line = vec![first.to_owned()];
        line.extend(
            cells
                .as_ref()
                .map_or_else(|_| Vec::new(), |cells| cells.to_vec()),
        );
        line.resize(self.head.len(), String::new());
        let why = cells.err().map(|why| why.to_string());
        let why = why.and_then(|why| Some(why.lines().next()?.to_owned()));
        self.lines.push((line, why));
    }

    pub(crate) fn for_a_terminal(&self) -> String {
        let all = || {
            self.lines
                .iter()
                .map(|(cells, _)| cells)
                .chain([&self.head])
        };
        let width = |at: usize| all().map(|cells| cells[at].chars().count()).max();
        let widths: Vec<_> = (0..self.head.len())
            .map(|at| width(at).unwrap_or(0))
            .collect();
        let line = |cells: &[String], remark: &str| {
            let mut line = format!("{:<1$}", cells[0], widths[0]);
            for (cell, width) in cells.iter().zip(&widths).skip(1) {
                // Writing to a string cannot fail.
                let _ = write!(line, "  {cell:>width$}");
            }
            format!("{}\n", format!("{line}  {remark}").trim_end())
        };
        let head = format!("{}\n{}", self.title, line(&self.head, ""));
        let lines = self.lines.iter();
        let lines = lines.map(|(cells, remark)| line(cells, remark.as_deref().unwrap_or("")));
        head + &lines.collect::<String>()
    }

    /// With the row of `ours` in bold.
    pub(crate) fn as_markdown(&self, ours: &str) -> String {
        let mut text = format!("| {} |\n|---|", self.head.join(" | "));
        text += &"---:|".repeat(self.head.len() - 1);
        text += "\n";
        for (cells, remark) in &self.lines {
            let mut first = cells[0].clone();
            if let Some(remark) = remark {
                first += &format!(" ({})", remark.replace('|', "/"));
            }
            if cells[0] == ours {
                first = format!("**{first}**");
            }
            let rest = cells[1..].iter().map(|cell| format!(" {cell} |"));
            text += &format!("| {first} |{}\n", rest.collect::<String>());
        }
        text
    }
}

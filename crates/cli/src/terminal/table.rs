//! Tables: aligned, without borders, as wide as the terminal, readable without colour.

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, presets};

use super::plain;

/// Between two columns.
const GAP: u16 = 2;
/// A last column that is narrower than this is not worth wrapping: the terminal does it as well.
const NARROWEST: u16 = 20;

/// Rows under headings. Only the last column is wrapped, and only on a terminal: in a file or a pipe, one row is one
/// line, so that `grep` finds it whole.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
    columns: usize,
    /// The column whose words have a colour.
    painted: Option<usize>,
}

impl Table {
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(headings);
        Self { table, columns: N, painted: None }
    }

    /// Names the column whose words are coloured by their meaning.
    #[must_use]
    pub fn painted(mut self, column: usize) -> Self {
        self.painted = Some(column);
        self
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.table.add_row(cells.map(|cell| plain::one_line(&cell)));
    }

    /// The lines, for a terminal of some width, or for whoever takes them as they are.
    pub fn lines(self, width: Option<u16>) -> impl Iterator<Item = String> {
        let mut table = self.table;
        let widths = table.column_max_content_widths();
        let last = self.columns - 1;
        for column in table.column_iter_mut() {
            let right = if column.index == last { 0 } else { GAP };
            column.set_padding((0, right));
            if column.index != last {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let fixed: u16 = widths.iter().take(last).map(|width| width + GAP).sum();
        if let Some(width) = width.filter(|width| *width >= fixed + NARROWEST) {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let span = self.painted.map(|at| {
            let start: u16 = widths.iter().take(at).map(|width| width + GAP).sum();
            (usize::from(start), usize::from(widths[at]))
        });
        let lines: Vec<String> = table.lines().collect();
        lines.into_iter().map(move |line| paint(line.trim_end(), span))
    }
}

/// Colours the word in a span of columns. What stands before it are names, which are ASCII; if ever it is not, the line
/// stays as it is.
fn paint(line: &str, span: Option<(usize, usize)>) -> String {
    let paint = || {
        let (start, width) = span?;
        let end = (start + width).min(line.len());
        let word = line.get(start..end)?.trim_end();
        let style = style(word)?;
        Some(format!("{}{style}{word}{style:#}{}", line.get(..start)?, line.get(start + word.len()..)?))
    };
    paint().unwrap_or_else(|| line.to_owned())
}

/// Colours are given by meaning: red needs a person, yellow goes on by itself, green is fit.
pub(super) fn style(word: &str) -> Option<Style> {
    match word {
        "failed" | "error" | "invalid" | "blocked" | "unprovisioned" => Some(AnsiColor::Red.on_default()),
        "silent" | "cannot tell" => Some(AnsiColor::Magenta.on_default()),
        "pending" | "outdated" | "configured" | "warning" => Some(AnsiColor::Yellow.on_default()),
        "applying" | "validating" | "provisioning" => Some(AnsiColor::Cyan.on_default()),
        "validated" | "passed" | "ok" => Some(AnsiColor::Green.on_default()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Table {
        let mut table = Table::new(["NODE", "STATE", "WHY"]).painted(1);
        table.row(["web1".into(), "pending".into(), "waiting for role db: 0 of 1 active".into()]);
        table.row(["k8s-node12_blue".into(), "validated".into(), String::new()]);
        table
    }

    fn text(table: Table, width: Option<u16>) -> String {
        let lines: Vec<String> = table.lines(width).collect();
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn columns_are_aligned_and_end_without_spaces() {
        insta::assert_snapshot!(text(nodes(), None), @r"
        NODE             STATE      WHY
        web1             pending    waiting for role db: 0 of 1 active
        k8s-node12_blue  validated
        ");
    }

    #[test]
    fn the_last_column_wraps_to_the_terminal() {
        insta::assert_snapshot!(text(nodes(), Some(50)), @r"
        NODE             STATE      WHY
        web1             pending    waiting for role db: 0
                                    of 1 active
        k8s-node12_blue  validated
        ");
    }

    #[test]
    fn words_are_painted_and_nothing_else() {
        let lines: Vec<String> = nodes().lines(None).collect();
        assert_eq!(lines[1], "web1             \u{1b}[33mpending\u{1b}[0m    waiting for role db: 0 of 1 active");
        assert_eq!(lines[0], "NODE             STATE      WHY");
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal_or_break_its_line() {
        let mut table = Table::new(["A", "B"]);
        table.row(["x".into(), "red \u{1b}[31m\u{1b}]0;title\u{7} and\nsecond line\r".into()]);
        assert_eq!(table.lines(None).nth(1).unwrap(), "x  red  and second line");
    }
}

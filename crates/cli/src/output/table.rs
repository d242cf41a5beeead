//! Tables: aligned columns without borders, as wide as the terminal; and the cells that show nodes and their runs.

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, presets};
use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::node::evidence::NotCounted;
use muster_core::node::liveness::Link;
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::record::PastRun;
use muster_core::report::{Cause, Outcome, Verdict};
use muster_wire::operator::NodeRow;

use super::{age, count, text};

/// Spaces between two columns.
const GAP: u16 = 2;
/// On a terminal with less space than this for the last column, each row becomes a block of lines.
const NARROWEST: u16 = 20;
/// The text of an empty cell.
pub const NONE: &str = "-";

/// Rows under headings. Only the last column wraps, and only on a terminal: in a file or a pipe one row is one line, for
/// `grep`. Words are never broken: on a terminal that is too narrow for the columns, each row is a block of lines.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
    headings: Vec<String>,
    columns: usize,
    /// The column whose words are colored.
    colored: Option<usize>,
}

impl Table {
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::with_headings(&headings)
    }

    fn with_headings(headings: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_header(headings);
        let columns = headings.len();
        Self { table, headings: headings.iter().map(|heading| (*heading).to_owned()).collect(), columns, colored: None }
    }

    /// Colors the values of a column by their meaning.
    #[must_use]
    pub fn color_column(mut self, column: usize) -> Self {
        self.colored = Some(column);
        self
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.add(cells.into_iter());
    }

    fn add(&mut self, cells: impl Iterator<Item = String>) {
        self.table.add_row(cells.map(|cell| text::one_line(&cell)));
    }

    /// The lines of the table; without a width nothing wraps.
    pub fn lines(self, width: Option<u16>) -> impl Iterator<Item = String> {
        let widths = self.table.column_max_content_widths();
        let last = self.columns - 1;
        let fixed: u16 = widths.iter().take(last).map(|width| width + GAP).sum();
        let needed = fixed.saturating_add(self.longest_word(last).max(widths[last].min(NARROWEST)));
        match width.filter(|width| *width < needed) {
            Some(width) => self.blocks(usize::from(width)),
            None => self.columns(&widths, width),
        }
        .into_iter()
    }

    /// Characters of the longest word of a column.
    fn longest_word(&self, column: usize) -> u16 {
        let cells = self.table.row_iter().filter_map(|row| row.cell_iter().nth(column));
        let words = cells.map(|cell| cell.content().split(' ').map(|word| word.chars().count()).max().unwrap_or(0));
        words.max().and_then(|longest| u16::try_from(longest).ok()).unwrap_or(0)
    }

    fn columns(self, widths: &[u16], width: Option<u16>) -> Vec<String> {
        let mut table = self.table;
        let last = self.columns - 1;
        for column in table.column_iter_mut() {
            let right = if column.index == last { 0 } else { GAP };
            column.set_padding((0, right));
            if column.index != last {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let span = self.colored.map(|at| {
            let start: u16 = widths.iter().take(at).map(|width| width + GAP).sum();
            (usize::from(start), usize::from(widths[at]))
        });
        table.lines().map(|line| color(line.trim_end(), span)).collect()
    }

    /// One block for each row: its cells with their headings, the last one on lines of its own. Empty cells are left out.
    fn blocks(self, width: usize) -> Vec<String> {
        let (last, colored) = (self.columns - 1, self.colored);
        let painted = |column: usize, cell: String| match colored {
            Some(colored) if colored == column => color(&cell, Some((0, cell.len()))),
            Some(_) | None => cell,
        };
        let mut lines = Vec::new();
        for row in self.table.row_iter() {
            let cells: Vec<String> = row.cell_iter().map(comfy_table::Cell::content).collect();
            let (mut line, mut used) = (String::new(), 0);
            let shown = |cell: &str| !cell.is_empty() && cell != NONE;
            for (column, (cell, heading)) in cells.iter().zip(&self.headings).enumerate().take(last) {
                if !shown(cell) {
                    continue;
                }
                let name = format!("{} ", heading.to_lowercase());
                let item = name.chars().count() + cell.chars().count();
                if used > 0 && used + usize::from(GAP) + item > width {
                    lines.push(std::mem::take(&mut line));
                    used = 0;
                }
                let gap = if used > 0 || column > 0 { usize::from(GAP) } else { 0 };
                line.push_str(&format!("{:gap$}{name}{}", "", painted(column, cell.clone())));
                used += gap + item;
            }
            lines.push(line);
            if let Some((cell, heading)) = cells.get(last).zip(self.headings.get(last)).filter(|(cell, _)| shown(cell))
            {
                let name = format!("    {} ", heading.to_lowercase());
                let indented = hanging(&name, cell, width).into_iter();
                lines.extend(indented.map(|(start, text)| format!("{start}{}", painted(last, text))));
            }
        }
        lines
    }
}

/// Breaks a text into lines of this width: the first after `start`, the others indented as far. Without room for the indent
/// they are indented by four.
pub(super) fn hanging(start: &str, text: &str, width: usize) -> Vec<(String, String)> {
    let length = start.chars().count();
    let indent = if width >= length + usize::from(NARROWEST) { length } else { length.min(4) };
    let lines = wrapped(text, width.saturating_sub(length).max(1));
    let mut lines = lines.into_iter();
    let first = lines.next().unwrap_or_default();
    std::iter::once((start.to_owned(), first)).chain(lines.map(|line| (" ".repeat(indent), line))).collect()
}

/// Breaks a text into lines at its spaces. An empty text has none.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Colors the word in a span of columns. The cells in front are ASCII names; a line with other characters there stays
/// uncolored.
fn color(line: &str, span: Option<(usize, usize)>) -> String {
    let color = || {
        let (start, width) = span?;
        let end = (start + width).min(line.len());
        let word = line.get(start..end)?.trim_end();
        let style = style(word)?;
        Some(format!("{}{style}{word}{style:#}{}", line.get(..start)?, line.get(start + word.len()..)?))
    };
    color().unwrap_or_else(|| line.to_owned())
}

/// Colors by meaning: red needs an operator, yellow makes progress by itself, green is healthy.
pub(crate) fn style(word: &str) -> Option<Style> {
    match word {
        "failed" | "error" | "checks failed" | "blocked" | "unprovisioned" => Some(AnsiColor::Red.on_default()),
        "unreachable" | "cannot tell" => Some(AnsiColor::Magenta.on_default()),
        "pending" | "outdated" | "configured" | "warning" | "validated (0 checks)" => {
            Some(AnsiColor::Yellow.on_default())
        }
        "paused" | "waits for promotion" => Some(AnsiColor::Yellow.on_default()),
        "applying" | "validating" | "provisioning" => Some(AnsiColor::Cyan.on_default()),
        "validated" | "passed" | "ok" => Some(AnsiColor::Green.on_default()),
        // States of a wave have details: "soaking for 4m".
        _ if word.starts_with("in progress") || word.starts_with("soaking") => Some(AnsiColor::Cyan.on_default()),
        _ if word.starts_with("the check ") => Some(AnsiColor::Red.on_default()),
        _ => None,
    }
}

/// Nodes with state, version and reason, and with their host names if one of them is not made from the name of its node.
pub fn node_table(rows: &[NodeRow], now: Timestamp) -> Table {
    node_rows(rows, now, false)
}

/// As [`node_table`], with the agents of the nodes.
pub fn node_list_table(rows: &[NodeRow], now: Timestamp) -> Table {
    node_rows(rows, now, rows.iter().any(|row| row.agent.is_some()))
}

fn node_rows(rows: &[NodeRow], now: Timestamp, with_agents: bool) -> Table {
    // A server of an older version sends none.
    let with_hosts = rows.iter().any(|row| !row.host.is_empty() && row.host != row.node.host());
    let with_policies = rows.iter().any(|row| row.policy.is_some());
    let all = [
        ("NODE", true),
        ("HOST", with_hosts),
        ("STATE", true),
        ("FOR", true),
        ("VERSION", true),
        ("POLICY", with_policies),
        ("AGENT", with_agents),
        ("WHY", true),
    ];
    let headings: Vec<&str> = all.iter().filter(|(_, shown)| *shown).map(|(heading, _)| *heading).collect();
    let mut table = Table::with_headings(&headings).color_column(if with_hosts { 2 } else { 1 });
    for row in rows {
        let node = row.node.to_string();
        let state = row.state_text().to_owned();
        let since = row.since.map_or_else(|| NONE.to_owned(), |since| age(since, now));
        let version = version_cell(row.running.as_ref());
        let why = row.reason.as_ref().map(|reason| reason_text(reason, now)).unwrap_or_default();
        let policy = row.policy.as_ref().map_or(NONE, |record| record.policy.word()).to_owned();
        let cells = [node, row.host.clone(), state, since, version, policy, agent_cell(row, now), why];
        table.add(cells.into_iter().zip(all).filter(|(_, (_, shown))| *shown).map(|(cell, _)| cell));
    }
    table
}

/// "0.2.0", "0.2.0 cron every 30m, next by 12:30:00"
fn agent_cell(row: &NodeRow, now: Timestamp) -> String {
    let Some(agent) = &row.agent else { return NONE.to_owned() };
    let Some(every) = agent.every else { return agent.version.clone() };
    let next = match row.link {
        Link::BetweenCalls { due, .. } if due > now => format!(", next by {}", due.strftime("%T")),
        Link::BetweenCalls { .. } => ", late".to_owned(),
        Link::Connected { .. } | Link::Silent { .. } => String::new(),
    };
    format!("{} cron, every {every}{next}", agent.version)
}

pub fn version_cell(version: Option<&Version>) -> String {
    version.map_or_else(|| NONE.to_owned(), Version::to_string)
}

/// The reason that a node is not validated, with the next retry of a failed run.
pub fn reason_text(why: &Reason, now: Timestamp) -> String {
    match why {
        Reason::Failed { errors, attempt, retry, .. } => {
            let mut text = why.to_string();
            if errors.len() > 1 {
                text.push_str(&format!(", and {}", count(errors.len() - 1, "more error")));
            }
            match (attempt, retry) {
                (_, Some(at)) => text.push_str(&format!("; attempt {} in {}", attempt + 1, age(now, *at))),
                (2.., None) => text.push_str(&format!("; attempt {attempt}")),
                (_, None) => {}
            }
            text
        }
        Reason::Waiting { retry: Some(at), .. } => format!("{why}; retries in {}", age(now, *at)),
        Reason::Leaving { .. }
        | Reason::Machine { .. }
        | Reason::Silent
        | Reason::Running { .. }
        | Reason::NoVersion
        | Reason::Behind { .. }
        | Reason::NotDue { .. }
        | Reason::Incompatible { .. }
        | Reason::Paused { .. }
        | Reason::Waiting { retry: None, .. }
        | Reason::Blocked { .. }
        | Reason::NotValidated
        | Reason::Restarted
        | Reason::Renewed => why.to_string(),
    }
}

/// The reason that the last validation of a node does not count.
pub fn not_counted_text(reason: &NotCounted, now: Timestamp) -> String {
    match reason {
        NotCounted::Unreachable { since } => format!("unreachable for {}", age(*since, now)),
        NotCounted::Lost { since } => format!("lost, unreachable for {}", age(*since, now)),
        NotCounted::Restarted => "its machine was restarted since".to_owned(),
        NotCounted::EarlierIncarnation => "that validation is of an earlier incarnation".to_owned(),
        NotCounted::EarlierEpoch => "the store went back in time, and the node has not reported since".to_owned(),
        NotCounted::Failed { since } => format!("failed for {}", age(*since, now)),
    }
}

/// Causes of a run, with its reason, and with the drift that it has repaired.
pub fn causes_and_reason(run: &PastRun) -> String {
    let causes: Vec<String> = run.causes.iter().map(Cause::to_string).collect();
    let causes = if causes.is_empty() { NONE.to_owned() } else { causes.join(", ") };
    let reason = run.reason.as_ref().map(|reason| format!(" → {reason}")).unwrap_or_default();
    let repaired = run.repaired.as_ref().map(|repaired| format!(" → {repaired}")).unwrap_or_default();
    format!("{causes}{reason}{repaired}")
}

/// The result of a run in one word. A validation without checks says so.
pub fn run_result(outcome: Outcome, checks: Option<u32>) -> String {
    match outcome {
        Outcome::Validated(Verdict::Passed) if checks == Some(0) => "validated (0 checks)".to_owned(),
        Outcome::Configured(result) => result.word().to_owned(),
        Outcome::Previewed(result) => format!("preview: {}", result.word()),
        Outcome::Validated(Verdict::Passed) => "validated".to_owned(),
        Outcome::Validated(Verdict::Failed) => NodeState::Invalid.label().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Table {
        let mut table = Table::new(["NODE", "STATE", "WHY"]).color_column(1);
        table.row(["web1".into(), "pending".into(), "waiting for role db: 0 of 1 active".into()]);
        table.row(["k8s-node12_blue".into(), "validated".into(), String::new()]);
        table
    }

    fn text(table: Table, width: Option<u16>) -> String {
        let lines: Vec<String> = table.lines(width).collect();
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        insta::assert_snapshot!(text(nodes(), None), @r"
        NODE             STATE      WHY
        web1             pending    waiting for role db: 0 of 1 active
        k8s-node12_blue  validated
        ");
    }

    #[test]
    fn last_column_wraps_to_the_terminal() {
        insta::assert_snapshot!(text(nodes(), Some(50)), @r"
        NODE             STATE      WHY
        web1             pending    waiting for role db: 0
                                    of 1 active
        k8s-node12_blue  validated
        ");
    }

    #[test]
    fn rows_become_blocks_if_columns_do_not_fit() {
        insta::assert_snapshot!(text(nodes(), Some(40)), @r"
        node web1  state pending
            why waiting for role db: 0 of 1
                active
        node k8s-node12_blue  state validated
        ");
    }

    #[test]
    fn only_words_are_colored() {
        let lines: Vec<String> = nodes().lines(None).collect();
        assert_eq!(lines[1], "web1             \u{1b}[33mpending\u{1b}[0m    waiting for role db: 0 of 1 active");
        assert_eq!(lines[0], "NODE             STATE      WHY");
    }

    #[test]
    fn control_characters_and_newlines_are_removed() {
        let mut table = Table::new(["A", "B"]);
        table.row(["x".into(), "red \u{1b}[31m\u{1b}]0;title\u{7} and\nsecond line\r".into()]);
        assert_eq!(table.lines(None).nth(1).unwrap(), "x  red  and second line");
    }
}

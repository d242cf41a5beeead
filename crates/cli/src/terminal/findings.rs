//! Findings in colour, for a terminal.

use anstyle::{AnsiColor, Style};
use muster_design::finding::{Finding, TextStyle};

/// Renders a finding with ANSI colours. The writer strips them where the output is not a terminal.
pub fn styled(finding: &Finding) -> String {
    let mut text = String::new();
    for part in finding.render() {
        let style = colour(part.style);
        // The style ends before the line feed: a terminal would colour the rest of the line.
        let (line, end) = match part.text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (part.text.as_str(), ""),
        };
        text.push_str(&format!("{style}{line}{style:#}{end}"));
    }
    text
}

fn colour(style: TextStyle) -> Style {
    match style {
        TextStyle::Error => AnsiColor::Red.on_default().bold(),
        TextStyle::Warning => AnsiColor::Yellow.on_default().bold(),
        TextStyle::Remark => AnsiColor::Cyan.on_default().bold(),
        TextStyle::Message => Style::new().bold(),
        TextStyle::Frame => AnsiColor::Blue.on_default(),
        TextStyle::Plain => Style::new(),
        TextStyle::Underline => AnsiColor::Red.on_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_design::finding::Code;

    #[test]
    fn colours_do_not_change_the_text() {
        let finding = Code::UnknownKey.finding("unknown key").help("did you mean another?");
        let styled = styled(&finding);
        assert!(styled.starts_with("\u{1b}[1m\u{1b}[31merror[M0103]\u{1b}[0m"), "{styled:?}");
        assert_eq!(anstream::adapter::strip_str(&styled).to_string(), finding.to_string());
    }
}

//! Renders findings with colors, for standard output and standard error.

use anstyle::{AnsiColor, Style};
use muster_design::finding::{Finding, TextStyle};

/// Renders a finding with colors; the streams remove them where colors are off.
pub fn render_finding(finding: &Finding) -> String {
    let mut text = String::new();
    for part in finding.render() {
        let style = color(part.style);
        // Without the newline: a terminal would color the rest of the line.
        let (line, end) = match part.text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (part.text.as_str(), ""),
        };
        text.push_str(&format!("{style}{line}{style:#}{end}"));
    }
    text
}

fn color(style: TextStyle) -> Style {
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
    use muster_design::finding::Code;

    use super::*;

    #[test]
    fn colors_do_not_change_the_text() {
        let finding = Code::UnknownKey.finding("unknown key").help("did you mean another?");
        let colored = render_finding(&finding);
        assert!(colored.starts_with("\u{1b}[1m\u{1b}[31merror[M0103]\u{1b}[0m"), "{colored:?}");
        assert_eq!(anstream::adapter::strip_str(&colored).to_string(), finding.to_string());
    }
}

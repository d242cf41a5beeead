//! Findings with colours: what they say is `muster-design`'s, how it looks is ours.

use anstyle::{AnsiColor, Style};
use muster_design::finding::{Finding, Ink};

/// A finding for a terminal; whoever writes to something else takes the colours out.
pub fn painted(finding: &Finding) -> String {
    let mut text = String::new();
    for piece in finding.pieces() {
        let style = style(piece.ink);
        // The end of a line is nobody's colour: a terminal would paint the rest of it.
        let (line, end) = match piece.text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (piece.text.as_str(), ""),
        };
        text.push_str(&format!("{style}{line}{style:#}{end}"));
    }
    text
}

fn style(ink: Ink) -> Style {
    match ink {
        Ink::Error => AnsiColor::Red.on_default().bold(),
        Ink::Warning => AnsiColor::Yellow.on_default().bold(),
        Ink::Remark => AnsiColor::Cyan.on_default().bold(),
        Ink::Message => Style::new().bold(),
        Ink::Frame => AnsiColor::Blue.on_default(),
        Ink::Plain => Style::new(),
        Ink::Caret => AnsiColor::Red.on_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_design::finding::Code;

    #[test]
    fn colours_change_nothing_but_the_looks() {
        let finding = Finding::new(Code::UnknownKey, "unknown key").help("did you mean another?");
        let painted = painted(&finding);
        assert!(painted.starts_with("\u{1b}[1m\u{1b}[31merror[M0103]\u{1b}[0m"), "{painted:?}");
        assert_eq!(anstream::adapter::strip_str(&painted).to_string(), finding.to_string());
    }
}

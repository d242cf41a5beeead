//! Shortens messages of programs without losing the reason, which apt and most others print last.

/// Beginnings of lines that state an error.
const ERROR_LINES: [&str; 9] =
    ["E: ", "Err:", "Error:", "error:", "ERROR:", "dpkg: error", "dpkg-deb: error", "fatal:", "FATAL:"];
const MARK: &str = "…";

/// A message of at most `limit` bytes. A longer one is reduced to its beginning and the lines that state an error; without
/// such lines, or if they are too long, the middle is left out.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty()).collect();
    let errors = error_lines(&lines);
    if errors.is_empty() {
        return without_middle(text, limit);
    }
    let errors = errors.join("\n");
    let Some(room) = limit.checked_sub(errors.len() + "\n".len()) else { return without_middle(&errors, limit) };
    let lead = lines.first().filter(|first| !states_error(first)).map_or("", |first| lead(first));
    match without_middle(lead, room) {
        // A few letters explain nothing.
        lead if lead.len() <= MARK.len() => errors,
        lead => format!("{lead}\n{errors}"),
    }
}

fn states_error(line: &str) -> bool {
    let line = line.trim_start();
    ERROR_LINES.iter().any(|begin| line.starts_with(begin))
}

/// The lines that state an error, each with the next one if it ends with a colon, as those of dpkg do.
fn error_lines<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    let follows = |at: usize| at > 0 && states_error(lines[at - 1]) && lines[at - 1].ends_with(':');
    lines.iter().enumerate().filter(|(at, line)| states_error(line) || follows(*at)).map(|(_, line)| *line).collect()
}

/// The part of Puppet's first line before the output of the command: `… returned 100:`.
fn lead(line: &str) -> &str {
    let end = line.match_indices(" returned ").find_map(|(at, found)| {
        let code = at + found.len();
        let digits = line[code..].bytes().take_while(u8::is_ascii_digit).count();
        let end = code + digits;
        (digits > 0 && line[end..].starts_with(':')).then_some(end + 1)
    });
    end.map_or(line, |end| &line[..end])
}

/// The beginning and the end of a text, together at most `limit` bytes.
fn without_middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let room = limit.saturating_sub(MARK.len());
    let head = (0..=room / 2).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let start = text.len() - (room - room / 2);
    let tail = (start..=text.len()).find(|start| text.is_char_boundary(*start)).unwrap_or(text.len());
    format!("{}{MARK}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const APT: &str = "change from 'purged' to 'present' failed: Execution of '/usr/bin/apt-get -q -y install nosuch' returned \
                       100: Reading package lists...\nBuilding dependency tree...\nReading state information...\n\
                       The following NEW packages will be installed:\n  a b c d\n\
                       E: Unable to locate package nosuch\n";

    #[test]
    fn reason_of_apt_stays() {
        assert_eq!(shorten(APT, 1000), APT);
        let reason = "E: Unable to locate package nosuch";
        let lead = "change from 'purged' to 'present' failed: Execution of '/usr/bin/apt-get -q -y install nosuch' returned 100:";
        assert_eq!(shorten(APT, 200), format!("{lead}\n{reason}"));
        let short = shorten(APT, 80);
        assert!(short.starts_with("change") && short.ends_with(reason) && short.len() <= 80, "{short}");
        assert_eq!(shorten(APT, reason.len() + 2), reason);
    }

    #[test]
    fn errors_of_dpkg_have_their_second_line() {
        let chatter = "Unpacking x (1.0) ...\n".repeat(20);
        let text = format!(
            "{chatter}dpkg: error processing package x (--configure):\n post-installation script returned 1\n{chatter}\
             E: Sub-process /usr/bin/dpkg returned an error code (1)"
        );
        let lines = shorten(&text, 240);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(
            lines,
            [
                "Unpacking x (1.0) ...",
                "dpkg: error processing package x (--configure):",
                " post-installation script returned 1",
                "E: Sub-process /usr/bin/dpkg returned an error code (1)",
            ]
        );
    }

    #[test]
    fn texts_without_error_lines_lose_their_middle() {
        let text = format!("begin {} end", "ä".repeat(100));
        for limit in [0, 1, 3, 4, 10, 31, 32, 33] {
            let short = shorten(&text, limit);
            assert!(short.len() <= limit.max(MARK.len()), "{limit}: {short}");
        }
        let short = shorten(&text, 33);
        assert!(short.starts_with("begin ä") && short.ends_with("ä end"), "{short}");
        let long = format!("E: {}", "x".repeat(300));
        assert!(shorten(&format!("first\n{long}"), 100).starts_with("E: xx"));
    }
}

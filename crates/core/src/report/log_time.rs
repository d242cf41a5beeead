//! Times in logs of runs. A line with a time begins with it, in UTC: `2027-01-15T08:00:01Z notice: …`. Output of programs
//! and the further lines of a message have none.

use jiff::Timestamp;

const LENGTH: usize = "2027-01-15T08:00:01Z".len();

/// A line with its time.
pub fn with_time(at: Timestamp, line: &str) -> String {
    format!("{} {line}", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
}

/// The time of a line, and the line without it.
pub fn split_time(line: &str) -> (Option<&str>, &str) {
    let parts = line.split_at_checked(LENGTH).and_then(|(time, rest)| Some((time, rest.strip_prefix(' ')?)));
    match parts.filter(|(time, _)| time.ends_with('Z') && time.parse::<Timestamp>().is_ok()) {
        Some((time, rest)) => (Some(time), rest),
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_split_off_only_if_there_is_one() {
        let at: Timestamp = "2027-01-15T09:00:01.9+01:00".parse().unwrap();
        let line = with_time(at, "notice: hello");
        assert_eq!(line, "2027-01-15T08:00:01Z notice: hello");
        assert_eq!(split_time(&line), (Some("2027-01-15T08:00:01Z"), "notice: hello"));
        for without in ["", "notice: hello", "2027-01-15T08:00:01Znotice", "2027-13-15T08:00:01Z x", "äöüäöüäöüäöü x"]
        {
            assert_eq!(split_time(without), (None, without));
        }
    }
}

//! Durations for people.

use jiff::{SignedDuration, Timestamp};

/// How long something is ago: one number and its unit, which is as exact as anybody reads it.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    // Clocks of two machines differ; nothing began in the future.
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long something took.
pub fn duration(took: SignedDuration) -> String {
    let millis = took.as_millis().max(0);
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..10_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        10_000..120_000 => format!("{}s", millis / 1_000),
        120_000..7_200_000 => format!("{}m {}s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("{}h {}m", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ages: Vec<String> =
            [0, 12, 119, 120, 3_599, 7_199, 7_200, 172_799, 172_800].map(|now| age(at(0), at(now))).into();
        assert_eq!(ages, ["0s", "12s", "119s", "2m", "59m", "119m", "2h", "47h", "2d"]);
        assert_eq!(age(at(10), at(0)), "0s", "a clock that is ahead");
    }

    #[test]
    fn durations_are_finer_the_shorter_they_are() {
        let cases = [0, 999, 3_456, 59_000, 125_000, 8_000_000].map(|ms| duration(SignedDuration::from_millis(ms)));
        assert_eq!(cases, ["0ms", "999ms", "3.4s", "59s", "2m 5s", "2h 13m"]);
    }
}

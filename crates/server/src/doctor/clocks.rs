//! Check of clock differences. Reports have the times of agents; servers and clients compute ages from them.

use jiff::{SignedDuration, Timestamp};
use muster_wire::doctor::{DoctorCheck, DoctorFinding, DoctorVerdict};

/// Difference that is visible in the ages on a screen.
const NOTICED: SignedDuration = SignedDuration::from_secs(1);
/// Difference of a lease TTL: decisions on ages become wrong.
const HARMFUL: SignedDuration = SignedDuration::from_secs(10);

/// Checks another clock by a response with its time: `theirs` was read between `asked` and `answered`. The duration of the
/// request is subtracted from the difference.
pub fn clock(subject: &str, asked: Timestamp, theirs: Timestamp, answered: Timestamp) -> DoctorFinding {
    let way = answered.duration_since(asked).max(SignedDuration::ZERO);
    let middle = asked.checked_add(way / 2).unwrap_or(asked);
    let apart = theirs.duration_since(middle);
    let certain = (apart.abs() - way / 2).max(SignedDuration::ZERO);
    let by = format!("{}.{:03} s", apart.abs().as_secs(), apart.abs().subsec_millis());
    let side = if apart.is_negative() { "behind" } else { "ahead" };
    if certain <= NOTICED {
        return DoctorFinding::new(DoctorCheck::Clock, DoctorVerdict::Ok, format!("within {by}")).of(subject);
    }
    let verdict = if certain > HARMFUL { DoctorVerdict::Failed } else { DoctorVerdict::Warning };
    let advice = "let a time service (chrony, systemd-timesyncd) set the clocks of both machines";
    DoctorFinding::new(DoctorCheck::Clock, verdict, format!("{by} {side}")).of(subject).advise(advice)
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::lines;
    use super::*;

    #[test]
    fn clock_difference_excludes_the_round_trip() {
        let at = |millis: i64| Timestamp::from_millisecond(1_000_000 + millis).unwrap();
        let table = [
            (5, 10, "clock ctl2 ok: within 0.000 s"),
            (900, 10, "clock ctl2 ok: within 0.895 s"),
            (1_005, 10, "clock ctl2 ok: within 1.000 s"),
            (1_100, 10, "clock ctl2 warning: 1.095 s ahead → let"),
            (-1_100, 10, "clock ctl2 warning: 1.105 s behind → let"),
            (11_000, 10, "clock ctl2 failed: 10.995 s ahead → let"),
            (-60_000, 10, "clock ctl2 failed: 60.005 s behind → let"),
            // A slow response proves less.
            (2_900, 4_000, "clock ctl2 ok: within 0.900 s"),
            (5_500, 4_000, "clock ctl2 warning: 3.500 s ahead → let"),
        ];
        for (theirs, way, expected) in table {
            let seen = lines([clock("ctl2", at(0), at(theirs), at(way))]);
            assert!(seen[0].starts_with(expected), "{theirs} {way}: {seen:?}");
        }
    }
}

//! Compares a run with one that was kept: the change of each row, and everything that makes changes incomparable.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::report::{self, BenchReport};
use crate::row::{BenchRow, Better, Unit};

/// A smaller change is not called better or worse: repeated runs on an idle machine differ by this much.
const NOISE: f64 = 0.05;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Differences of the machines. If there are any, the numbers are not comparable.
    pub(crate) other_machine: Vec<String>,
    /// Other circumstances: versions, load.
    pub(crate) circumstances: Vec<String>,
    pub(crate) rows: Vec<RowComparison>,
    /// Benchmarks of the kept run that were not run now. Their rows are not listed.
    pub(crate) not_run: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RowComparison {
    pub(crate) benchmark: String,
    pub(crate) measure: String,
    pub(crate) unit: Unit,
    pub(crate) before: Option<f64>,
    pub(crate) now: Option<f64>,
    pub(crate) change: RowChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowChange {
    /// Growth relative to the number before, and its meaning. The meaning is none for a small change, for a number
    /// without a direction, and for another machine.
    By {
        relative: f64,
        meaning: Option<ChangeMeaning>,
    },
    /// It was nothing before, and is nothing or something now.
    FromZero,
    OnlyBefore,
    OnlyNow,
    /// The kept run has the number in another unit.
    OtherUnit(Unit),
    /// The row exists on both sides, and has no number on one of them.
    NotMeasured,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeMeaning {
    Better,
    Worse,
}

impl Comparison {
    pub(crate) fn new(before: &BenchReport, now: &BenchReport) -> Self {
        let other_machine = now.machine.differences(&before.machine);
        let run: BTreeSet<&str> = now.measured.iter().map(|measured| measured.name.as_str()).collect();
        let mut kept: BTreeMap<(&str, &str), &BenchRow> =
            before.rows().map(|(name, row)| ((name, row.measure.as_str()), row)).collect();
        let mut rows = Vec::new();
        for (name, row) in now.rows() {
            let found = kept.remove(&(name, row.measure.as_str()));
            rows.push(RowComparison {
                benchmark: name.to_owned(),
                measure: row.measure.clone(),
                unit: row.unit,
                before: found.and_then(|found| found.value),
                now: row.value,
                change: change(found, row, other_machine.is_empty()),
            });
        }
        // In the order of the kept run.
        let only_before =
            before.rows().filter(|(name, row)| run.contains(name) && kept.contains_key(&(*name, row.measure.as_str())));
        rows.extend(only_before.map(|(name, row)| RowComparison {
            benchmark: name.to_owned(),
            measure: row.measure.clone(),
            unit: row.unit,
            before: row.value,
            now: None,
            change: RowChange::OnlyBefore,
        }));
        let not_run = before.measured.iter().filter(|kept| !run.contains(kept.name.as_str()));
        let not_run = not_run.map(|kept| kept.name.clone()).collect();
        Self { other_machine, circumstances: circumstances(before, now), rows, not_run }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = "\nCompared with the kept run\n".to_owned();
        if !self.other_machine.is_empty() {
            text.push_str("  The kept run is of another machine: the changes are not comparable.\n");
        }
        for line in self.other_machine.iter().chain(&self.circumstances) {
            text.push_str(&format!("  {line}\n"));
        }
        if !self.not_run.is_empty() {
            text.push_str(&format!("  Only in the kept run, and not run now: {}\n", self.not_run.join(", ")));
        }
        let mut lines = vec![["MEASURE", "BEFORE", "NOW", "CHANGE"].map(str::to_owned)];
        lines.extend(self.rows.iter().map(RowComparison::cells));
        text.push('\n');
        text + &report::table(&lines)
    }
}

impl RowComparison {
    fn cells(&self) -> [String; 4] {
        let show = |unit: Unit, value: Option<f64>| value.map(|value| unit.show(value)).unwrap_or_default();
        let (before_unit, change) = match self.change {
            RowChange::By { relative, meaning } => {
                let meaning = match meaning {
                    Some(ChangeMeaning::Better) => ", better",
                    Some(ChangeMeaning::Worse) => ", worse",
                    None => "",
                };
                (self.unit, format!("{:+.1} %{meaning}", relative * 100.0))
            }
            RowChange::FromZero => (self.unit, String::new()),
            RowChange::OnlyBefore => (self.unit, "only in the kept run".to_owned()),
            RowChange::OnlyNow => (self.unit, "not in the kept run".to_owned()),
            RowChange::OtherUnit(before) => (before, "another unit: not comparable".to_owned()),
            RowChange::NotMeasured => (self.unit, "not measured on both sides".to_owned()),
        };
        [self.measure.clone(), show(before_unit, self.before), show(self.unit, self.now), change]
    }
}

fn change(before: Option<&BenchRow>, now: &BenchRow, is_same_machine: bool) -> RowChange {
    let Some(before) = before else { return RowChange::OnlyNow };
    if before.unit != now.unit {
        return RowChange::OtherUnit(before.unit);
    }
    let (Some(old), Some(new)) = (before.value, now.value) else { return RowChange::NotMeasured };
    if old == 0.0 {
        return RowChange::FromZero;
    }
    let relative = new / old - 1.0;
    let meaning = match now.better() {
        Some(better) if is_same_machine && relative.abs() >= NOISE => {
            let is_better = (relative > 0.0) == (better == Better::Higher);
            Some(if is_better { ChangeMeaning::Better } else { ChangeMeaning::Worse })
        }
        Some(_) | None => None,
    };
    RowChange::By { relative, meaning }
}

/// Differences that do not make numbers incomparable, but may explain a change.
fn circumstances(before: &BenchReport, now: &BenchReport) -> Vec<String> {
    let mut lines = vec![format!("before: {}", before.run), format!("now: {}", now.run)];
    let (old, new) = (before.machine.kernel(), now.machine.kernel());
    if old != new {
        lines.push(format!("kernel: Linux {old} before, Linux {new} now"));
    }
    for (run, when) in [(before, "before"), (now, "now")] {
        if run.run.is_loaded(run.machine.processors()) {
            lines.push(format!(
                "other programs ran on the machine {when}: times and rates are worse than on an idle one"
            ));
        }
    }
    match (before.quick, now.quick) {
        (true, false) => {
            lines.push("the kept run was the short form (--quick): other sizes, fewer repetitions".to_owned())
        }
        (false, true) => lines.push("this run is the short form (--quick): other sizes, fewer repetitions".to_owned()),
        (true, true) | (false, false) => {}
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::machine::MachineInfo;
    use crate::parts::run_facts::RunFacts;

    fn seconds(measure: &str, value: f64) -> BenchRow {
        BenchRow::new(measure, Unit::Seconds, value)
    }

    fn compared(before: Vec<BenchRow>, now: Vec<BenchRow>) -> Comparison {
        Comparison::new(&BenchReport::example(&[("status", before)]), &BenchReport::example(&[("status", now)]))
    }

    fn by(relative: f64, meaning: Option<ChangeMeaning>) -> RowChange {
        RowChange::By { relative, meaning }
    }

    #[test]
    fn change_is_relative_to_the_kept_number() {
        let compared = compared(
            vec![
                seconds("status", 2.0),
                BenchRow::new("reports", Unit::PerSecond, 100.0),
                BenchRow::new("woken", Unit::Count, 10.0),
                BenchRow::new("reads", Unit::Count, 0.0).at_most(10.0),
                seconds("list", 1.0),
            ],
            vec![
                seconds("status", 1.0),
                BenchRow::new("reports", Unit::PerSecond, 50.0),
                BenchRow::new("woken", Unit::Count, 15.0),
                BenchRow::new("reads", Unit::Count, 3.0).at_most(10.0),
                seconds("list", 1.03125),
            ],
        );
        let changes: Vec<RowChange> = compared.rows.iter().map(|row| row.change).collect();
        assert_eq!(
            changes,
            [
                by(-0.5, Some(ChangeMeaning::Better)),
                by(-0.5, Some(ChangeMeaning::Worse)),
                by(0.5, None),
                RowChange::FromZero,
                by(0.03125, None),
            ]
        );
        assert_eq!(compared.rows[0].cells(), ["status", "2 s", "1 s", "-50.0 %, better"]);
        assert_eq!(compared.other_machine, Vec::<String>::new());
    }

    #[test]
    fn row_of_one_side_is_listed() {
        let compared = compared(vec![seconds("old", 1.0)], vec![seconds("new", 2.0)]);
        let rows: Vec<[String; 4]> = compared.rows.iter().map(RowComparison::cells).collect();
        assert_eq!(rows, [["new", "", "2 s", "not in the kept run"], ["old", "1 s", "", "only in the kept run"]]);
    }

    #[test]
    fn benchmark_that_was_not_run_is_named() {
        let row = || vec![seconds("m", 1.0)];
        let before = BenchReport::example(&[("status", row()), ("reports", row())]);
        let compared = Comparison::new(&before, &BenchReport::example(&[("status", row())]));
        assert_eq!((compared.rows.len(), compared.not_run.as_slice()), (1, ["reports".to_owned()].as_slice()));
        assert!(compared.text().contains("Only in the kept run, and not run now: reports\n"));
    }

    #[test]
    fn other_unit_is_not_compared() {
        let compared = compared(vec![BenchRow::new("m", Unit::Bytes, 17.0)], vec![seconds("m", 1.0)]);
        assert_eq!(compared.rows[0].change, RowChange::OtherUnit(Unit::Bytes));
        assert_eq!(compared.rows[0].cells(), ["m", "17 B", "1 s", "another unit: not comparable"]);
    }

    #[test]
    fn unmeasured_row_is_not_compared() {
        let unmeasured = BenchRow::not_measured("m", Unit::Seconds, "too few files");
        let compared = compared(vec![seconds("m", 1.0)], vec![unmeasured]);
        assert_eq!(compared.rows[0].change, RowChange::NotMeasured);
    }

    #[test]
    fn other_machine_makes_no_row_better_or_worse() {
        let before = BenchReport::example(&[("status", vec![seconds("m", 2.0)])]);
        let mut now = BenchReport::example(&[("status", vec![seconds("m", 1.0)])]);
        let machine = serde_json::to_string(&MachineInfo::example()).unwrap().replace("ext4", "tmpfs");
        now.machine = serde_json::from_str(&machine).unwrap();
        let compared = Comparison::new(&before, &now);
        assert_eq!(compared.other_machine, ["file system: ext4 before, tmpfs now"]);
        assert_eq!(compared.rows[0].change, by(-0.5, None));
        assert!(compared.text().contains("another machine: the changes are not comparable"));
    }

    #[test]
    fn load_and_short_form_are_said() {
        let before = BenchReport::example(&[]);
        let mut now = BenchReport::example(&[]);
        now.run = RunFacts { load_average: Some(3.0), ..RunFacts::example() };
        now.quick = true;
        let lines = Comparison::new(&before, &now).circumstances;
        assert!(lines.iter().any(|line| line.starts_with("other programs ran on the machine now")), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("this run is the short form")), "{lines:?}");
    }
}

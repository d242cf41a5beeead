//! A kept run beside this one: for each unit one chart, with two points for each row on a logarithmic axis. Equal ratios
//! have equal lengths, so that rows of different sizes can be compared.

use std::collections::{BTreeMap, HashMap};

use super::ChartFile;
use super::scale::LogScale;
use super::svg::{Anchor, Svg};
use crate::report::BenchReport;
use crate::row::{BenchRow, RowTarget, TargetVerdict, Unit};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 16.0;
const RIGHT: f64 = WIDTH - 16.0;
/// Height of title and legend, of a row, and of the axis.
const HEAD: f64 = 84.0;
const ROW: f64 = 38.0;
const FOOT: f64 = 44.0;

/// A row with positive numbers on both sides.
struct Pair<'a> {
    row: &'a BenchRow,
    before: f64,
    now: f64,
}

pub(super) fn charts(now: &BenchReport, before: &BenchReport) -> Vec<ChartFile> {
    let kept: HashMap<(&str, &str), &BenchRow> =
        before.rows().map(|(name, row)| ((name, row.measure.as_str()), row)).collect();
    let mut units: BTreeMap<Unit, Vec<Pair<'_>>> = BTreeMap::new();
    for (name, row) in now.rows() {
        // Growth has a chart of its own.
        if row.growth.is_none()
            && let Some(old) = kept.get(&(name, row.measure.as_str()))
            && old.unit == row.unit
            && let (Some(before), Some(now)) = (old.value, row.value)
            && before > 0.0
            && now > 0.0
        {
            units.entry(row.unit).or_default().push(Pair { row, before, now });
        }
    }
    // The order of the units in the table: times first.
    let order = [
        (Unit::Seconds, "seconds", "Times: left is faster"),
        (Unit::Bytes, "bytes", "Memory and sizes: left is smaller"),
        (Unit::PerSecond, "per-second", "Rates: right is faster"),
        (Unit::Ratio, "ratio", "Ratios"),
        (Unit::Count, "count", "Counts"),
    ];
    let mut charts = Vec::new();
    for (unit, name, title) in order {
        if let Some(pairs) = units.get(&unit)
            && let Some(svg) = chart(title, unit, pairs)
        {
            charts.push(ChartFile { name: format!("before-after-{name}.svg"), svg });
        }
    }
    charts
}

fn chart(title: &str, unit: Unit, pairs: &[Pair<'_>]) -> Option<String> {
    let ends = pairs.iter().flat_map(|pair| [Some(pair.before), Some(pair.now), limit(pair.row)]).flatten();
    let scale = LogScale::around(unit, ends, LEFT + 8.0, RIGHT - 40.0)?;
    #[expect(clippy::cast_precision_loss, reason = "a chart has few rows")]
    let bottom = HEAD + ROW * pairs.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + FOOT, &format!("{title}, before and now"));
    svg.text("title", Anchor::Start, (LEFT, 24.0), title);
    legend(&mut svg);
    for tick in scale.ticks() {
        let x = scale.position(tick);
        svg.line("grid", (x, HEAD - 8.0), (x, bottom));
        svg.text("faint", Anchor::Middle, (x, bottom + 16.0), &unit.show(tick));
    }
    svg.text("faint", Anchor::Middle, (WIDTH / 2.0, bottom + 36.0), axis_title(unit));
    let mut top = HEAD;
    for pair in pairs {
        row(&mut svg, &scale, unit, pair, top);
        top += ROW;
    }
    Some(svg.finish())
}

fn legend(svg: &mut Svg) {
    let y = 48.0;
    svg.circle("before", (LEFT + 6.0, y - 4.0), 5.0);
    svg.text("faint", Anchor::Start, (LEFT + 18.0, y), "before");
    svg.circle("now", (LEFT + 86.0, y - 4.0), 5.0);
    svg.text("faint", Anchor::Start, (LEFT + 98.0, y), "now");
    svg.circle("missed", (LEFT + 146.0, y - 4.0), 5.0);
    svg.text("faint", Anchor::Start, (LEFT + 158.0, y), "now, misses its target");
    svg.line("target", (LEFT + 306.0, y - 10.0), (LEFT + 306.0, y + 2.0));
    svg.text("faint", Anchor::Start, (LEFT + 314.0, y), "target");
}

fn row(svg: &mut Svg, scale: &LogScale, unit: Unit, pair: &Pair<'_>, top: f64) {
    let Pair { row, before, now } = pair;
    let values = format!("{} → {}", unit.show(*before), unit.show(*now));
    svg.text("label", Anchor::Start, (LEFT, top + 8.0), &row.measure);
    svg.text("label", Anchor::End, (RIGHT, top + 8.0), &values);
    let y = top + 20.0;
    let (from, to) = (scale.position(*before), scale.position(*now));
    svg.line("change", (from, y), (to, y));
    if let Some(limit) = limit(row) {
        let x = scale.position(limit);
        svg.line("target", (x, y - 6.0), (x, y + 6.0));
    }
    svg.circle("before", (from, y), 5.0);
    let class = match row.verdict {
        TargetVerdict::Missed => "missed",
        TargetVerdict::Met | TargetVerdict::Shown | TargetVerdict::NotMeasured => "now",
    };
    svg.circle(class, (to, y), 4.0);
}

fn limit(row: &BenchRow) -> Option<f64> {
    match row.target {
        RowTarget::Under(limit) | RowTarget::AtLeast(limit) | RowTarget::AtMost(limit) => Some(limit),
        RowTarget::Zero | RowTarget::Shown => None,
    }
}

fn axis_title(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "time, logarithmic",
        Unit::Bytes => "bytes, logarithmic",
        Unit::PerSecond => "number per second, logarithmic",
        Unit::Count => "number, logarithmic",
        Unit::Ratio => "ratio, logarithmic",
    }
}

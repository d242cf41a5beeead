//! Growth with the size of the fleet: a panel for each figure, with the figure per node over the number of nodes. A flat
//! line stays in the band.

use std::collections::BTreeMap;

use super::ChartFile;
use super::scale::{LogScale, round_end};
use super::svg::{Anchor, Svg};
use crate::report::BenchReport;
use crate::row::{FLAT, Unit};

const COLUMNS: usize = 2;
const WIDTH: f64 = 800.0;
/// Height of title and legend.
const HEAD: f64 = 76.0;
/// A panel, and the margins of its plot: axis labels on the left and below, the title above.
const PANEL: (f64, f64) = (WIDTH / 2.0, 196.0);
const MARGIN_LEFT: f64 = 76.0;
const MARGIN_RIGHT: f64 = 24.0;
const MARGIN_TOP: f64 = 28.0;
const MARGIN_BOTTOM: f64 = 48.0;

/// One figure by the number of nodes.
#[derive(Clone, Debug)]
struct Figure {
    name: String,
    unit: Unit,
    points: BTreeMap<u32, f64>,
}

/// None if the run has no growth rows.
pub(super) fn chart(now: &BenchReport, before: Option<&BenchReport>) -> Option<ChartFile> {
    let shown = figures(now);
    if shown.is_empty() {
        return None;
    }
    let kept = before.map(figures).unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "there are few panels")]
    let rows = shown.len().div_ceil(COLUMNS) as f64;
    let title = "Growth with the number of nodes: each figure per node, or per report";
    let mut svg = Svg::new(WIDTH, HEAD + rows * PANEL.1, title);
    svg.text("title", Anchor::Start, (16.0, 24.0), title);
    legend(&mut svg, !kept.is_empty());
    let nodes = shown.iter().flat_map(|figure| figure.points.keys().copied());
    let ends = nodes.clone().min().zip(nodes.max())?;
    for (number, figure) in shown.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "there are few panels")]
        let (column, row) = ((number % COLUMNS) as f64, (number / COLUMNS) as f64);
        let before = kept.iter().find(|kept| kept.name == figure.name && kept.unit == figure.unit);
        panel(&mut svg, (column * PANEL.0, HEAD + row * PANEL.1), figure, before, ends);
    }
    Some(ChartFile { name: "growth.svg".to_owned(), svg: svg.finish() })
}

/// Figures of at least two sizes, in the order of the table.
fn figures(report: &BenchReport) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (_, row) in report.rows() {
        let (Some(point), Some(value)) = (&row.growth, row.value) else { continue };
        let at = figures.iter().position(|figure| figure.name == point.figure && figure.unit == row.unit);
        let at = at.unwrap_or_else(|| {
            figures.push(Figure { name: point.figure.clone(), unit: row.unit, points: BTreeMap::new() });
            figures.len() - 1
        });
        figures[at].points.insert(point.nodes, value);
    }
    // One point is no growth.
    figures.retain(|figure| figure.points.len() > 1);
    figures
}

fn legend(svg: &mut Svg, with_before: bool) {
    let y = 48.0;
    svg.rect("band", (16.0, y - 12.0), (24.0, 14.0));
    svg.text("faint", Anchor::Start, (46.0, y), &format!("at most {FLAT} × the smallest fleet"));
    svg.line("now-line", (266.0, y - 4.0), (290.0, y - 4.0));
    svg.text("faint", Anchor::Start, (296.0, y), "now");
    svg.line("missed-line", (346.0, y - 4.0), (370.0, y - 4.0));
    svg.text("faint", Anchor::Start, (376.0, y), "now, not flat");
    if with_before {
        svg.line("before-line", (486.0, y - 4.0), (510.0, y - 4.0));
        svg.text("faint", Anchor::Start, (516.0, y), "before");
    }
}

fn panel(svg: &mut Svg, (left, top): (f64, f64), figure: &Figure, before: Option<&Figure>, ends: (u32, u32)) {
    let (x0, x1) = (left + MARGIN_LEFT, left + PANEL.0 - MARGIN_RIGHT);
    let (y0, y1) = (top + PANEL.1 - MARGIN_BOTTOM, top + MARGIN_TOP);
    let first = figure.points.values().next().copied().unwrap_or_default();
    let all = figure.points.values().chain(before.iter().flat_map(|before| before.points.values()));
    let end = round_end(figure.unit, all.copied().fold(first * FLAT, f64::max));
    let y = |value: f64| y0 + (value.max(0.0) / end) * (y1 - y0);
    let Some(scale) = LogScale::around(Unit::Count, [f64::from(ends.0), f64::from(ends.1)], x0, x1) else { return };
    let x = |nodes: u32| scale.position(f64::from(nodes));

    svg.text("label", Anchor::Start, (left + 16.0, top + 14.0), &figure.name);
    if first > 0.0 {
        svg.rect("band", (x0, y(first * FLAT)), (x1 - x0, y0 - y(first * FLAT)));
    }
    for share in [0.5, 1.0] {
        svg.line("grid", (x0, y(end * share)), (x1, y(end * share)));
        svg.text("faint", Anchor::End, (x0 - 6.0, y(end * share) + 4.0), &figure.unit.show(end * share));
    }
    svg.text("faint", Anchor::End, (x0 - 6.0, y0 + 4.0), "0");
    svg.line("axis", (x0, y0), (x1, y0));
    svg.line("axis", (x0, y0), (x0, y1));
    for nodes in figure.points.keys() {
        svg.line("axis", (x(*nodes), y0), (x(*nodes), y0 + 4.0));
        svg.text("faint", Anchor::Middle, (x(*nodes), y0 + 16.0), &Unit::Count.show(f64::from(*nodes)));
    }
    svg.text("faint", Anchor::Middle, (f64::midpoint(x0, x1), y0 + 34.0), "nodes, logarithmic");
    if let Some(before) = before {
        let points: Vec<(f64, f64)> = before.points.iter().map(|(nodes, value)| (x(*nodes), y(*value))).collect();
        svg.polyline("before-line", &points);
    }
    let last = figure.points.values().next_back().copied().unwrap_or_default();
    let (line, dot) = if last > first * FLAT { ("missed-line", "missed") } else { ("now-line", "now") };
    let points: Vec<(f64, f64)> = figure.points.iter().map(|(nodes, value)| (x(*nodes), y(*value))).collect();
    svg.polyline(line, &points);
    points.iter().for_each(|point| svg.circle(dot, *point, 3.0));
}

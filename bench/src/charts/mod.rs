//! Charts of a run as SVG files: growth with the size of the fleet, and a kept run beside this one.
//!
//! The same run gives the same bytes. The files have no script, and follow the light or dark scheme of the reader.

mod before_after;
mod growth;
mod scale;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::report::BenchReport;

/// A file of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChartFile {
    name: String,
    svg: String,
}

/// Writes the charts of a run, and of a kept run beside it, into a directory. Returns their paths.
pub(crate) fn write(dir: &Path, now: &BenchReport, before: Option<&BenchReport>) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut written = Vec::new();
    for ChartFile { name, svg } in charts(now, before) {
        let path = dir.join(name);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn charts(now: &BenchReport, before: Option<&BenchReport>) -> Vec<ChartFile> {
    let mut charts: Vec<ChartFile> = growth::chart(now, before).into_iter().collect();
    if let Some(before) = before {
        charts.extend(before_after::charts(now, before));
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{BenchRow, Unit};

    fn run(factor: f64) -> BenchReport {
        let fleets = [1_000_u32, 5_000, 20_000];
        let memory = |nodes: u32| {
            BenchRow::new(format!("fleet of {nodes} nodes: memory"), Unit::Bytes, 9e3 * factor).grows("memory", nodes)
        };
        let command = |nodes: u32| {
            BenchRow::new(format!("fleet of {nodes} nodes: status"), Unit::Seconds, 2e-6 * factor)
                .grows("`status` <all> & \"more\"", nodes)
        };
        let mut growth: Vec<BenchRow> = fleets.map(memory).into();
        growth.extend(fleets.map(command));
        growth.push(BenchRow::not_measured("m", Unit::Bytes, "too few files").grows("memory", 50_000));
        let others = vec![
            BenchRow::new("status <5,000> & \"more\"", Unit::Seconds, 0.012 * factor).under(0.05),
            BenchRow::new("node list", Unit::Seconds, 0.052),
            BenchRow::new("reports", Unit::PerSecond, 4_450.0 / factor),
            BenchRow::new("reads", Unit::Count, 0.0).zero(),
        ];
        BenchReport::example(&[("fleet-growth", growth), ("status", others)])
    }

    #[test]
    fn charts_are_well_formed_and_deterministic() {
        let (now, before) = (run(0.5), run(1.0));
        let drawn = charts(&now, Some(&before));
        let names: Vec<&str> = drawn.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["growth.svg", "before-after-seconds.svg", "before-after-per-second.svg"]);
        assert_eq!(drawn, charts(&now, Some(&before)));
        for ChartFile { name, svg } in &drawn {
            svg::tests::assert_well_formed(svg, name);
            assert!(!svg.contains("<script"), "{name}");
            assert!(svg.contains("prefers-color-scheme: dark"), "{name}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}: {svg}");
        }
    }

    #[test]
    fn chart_of_the_book_is_current() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/benchmarks");
        let kept = BenchReport::read(&book.join("growth.json")).unwrap();
        for ChartFile { name, svg } in charts(&kept, None) {
            let hint = "muster-bench --from docs/src/benchmarks/growth.json --charts docs/src/benchmarks";
            assert_eq!(fs::read_to_string(book.join(&name)).unwrap(), svg, "{name} is not current: {hint}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        for ChartFile { name, svg } in charts(&run(0.5), Some(&run(1.0))) {
            assert!(!svg.contains("<all>") && !svg.contains("<5,000>"), "{name}");
        }
    }

    #[test]
    fn run_without_kept_run_has_no_before_and_after() {
        let names: Vec<String> = charts(&run(1.0), None).into_iter().map(|chart| chart.name).collect();
        assert_eq!(names, ["growth.svg"]);
        assert_eq!(charts(&BenchReport::example(&[]), Some(&run(1.0))), []);
    }

    #[test]
    fn charts_are_written_into_a_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let written = write(&dir.path().join("charts"), &run(1.0), None).unwrap();
        assert_eq!(written, [dir.path().join("charts/growth.svg")]);
        assert!(fs::read_to_string(&written[0]).unwrap().starts_with("<svg"));
    }
}

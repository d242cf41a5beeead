//! Metrics of the process, under the usual Prometheus names.

use std::fmt;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{counter, describe, gauge};

/// Unit of the times in `/proc/self/stat`. The kernel uses this value on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// Collector of the metrics of the process.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    started: Timestamp,
}

impl ProcessMetrics {
    pub(super) fn new(started: Timestamp) -> Self {
        Self { started }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let mut info = describe(encoder, "muster_build_info", "The version of the program", None, MetricType::Gauge)?;
        info.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?.encode_gauge(&1_u64)?;
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let started = self.started.as_second();
        gauge(encoder, "process_start_time", "Start time of the server, in seconds since 1970", seconds, started)?;
        let resident = resident_bytes().unwrap_or(0);
        gauge(encoder, "process_resident_memory", "Resident memory of the process", bytes, resident)?;
        let cpu = cpu_seconds().unwrap_or(0.0);
        counter(encoder, "process_cpu", "CPU time that the process has used", seconds, cpu)?;
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        gauge(encoder, "process_open_fds", "Open file descriptors", None, open as u64)
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program name is in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<f64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert!(resident_bytes().unwrap() > 1024 * 1024);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}

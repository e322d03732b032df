//! A report in aligned columns.

use std::fmt::{self, Display, Formatter};

use super::case::Layout;
use super::report::{CaseResult, LatencyResult, Report};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(case) = self.cases.first() {
            let (window, rounds) = (case.window, case.rounds);
            writeln!(
                f,
                "libfabric {}, {window} writes in flight for each NIC; GB/s and processor seconds per \
                 GB,\nmedians of {rounds} interleaved rounds; engine/bare within each round",
                self.libfabric
            )?;
            let head = [
                "provider",
                "piece",
                "layout",
                "nics",
                "writes",
                "engine",
                "bare",
                "tcp",
                "memcpy",
                "ratio",
                "engine cpu",
                "bare cpu",
                "tcp cpu",
                "ratio",
            ];
            let mut rows = vec![head.map(String::from).to_vec()];
            rows.extend(self.cases.iter().map(case_row));
            write_rows(f, &rows)?;
        }
        if self.latencies.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nmicroseconds of one write, p50/p99")?;
        let head = [
            "provider",
            "bytes",
            "engine completed",
            "bare completed",
            "engine counted",
            "bare counted",
        ];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(self.latencies.iter().map(latency_row));
        write_rows(f, &rows)
    }
}

fn case_row(case: &CaseResult) -> Vec<String> {
    let layout = match case.layout {
        Layout::Scattered if case.run_pages > 1 => format!("runs of {}", case.run_pages),
        layout => layout.as_str().into(),
    };
    let rates = [
        case.engine_gbytes_per_s,
        case.bare_gbytes_per_s,
        case.tcp_gbytes_per_s,
        case.memcpy_gbytes_per_s,
        case.engine_to_bare,
        case.engine_cpu_s_per_gb,
        case.bare_cpu_s_per_gb,
        case.tcp_cpu_s_per_gb,
        case.engine_to_bare_cpu,
    ];
    let mut row = vec![
        case.provider.clone(),
        bytes(case.piece_bytes),
        layout,
        case.nics.to_string(),
        case.writes.to_string(),
    ];
    row.extend(rates.map(|rate| format!("{rate:.2}")));
    row
}

fn latency_row(latency: &LatencyResult) -> Vec<String> {
    let mut row = vec![latency.provider.clone(), bytes(latency.bytes)];
    let all = [
        latency.engine_completion_us,
        latency.bare_completion_us,
        latency.engine_counted_us,
        latency.bare_counted_us,
    ];
    row.extend(all.map(|us| format!("{:.1}/{:.1}", us.p50, us.p99)));
    row
}

fn bytes(n: u32) -> String {
    if n.is_multiple_of(1024) {
        format!("{} KiB", n >> 10)
    } else {
        format!("{n} B")
    }
}

/// Every column as wide as its widest cell; words to the left, numbers to the right.
fn write_rows(f: &mut Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let Some(last) = rows.last() else {
        return Ok(());
    };
    let widest = |column: usize| rows.iter().map(|r| r[column].len()).max();
    let widths: Vec<usize> = (0..last.len()).map(|c| widest(c).unwrap_or(0)).collect();
    let numbers = |column: usize| last[column].starts_with(|c: char| c.is_ascii_digit());
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            if numbers(column) {
                write!(f, "{gap}{cell:>width$}")?;
            } else {
                write!(f, "{gap}{cell:<width$}")?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::Case;
    use crate::bench::report::{Measured, Microseconds, Round};

    #[test]
    fn columns_are_aligned() {
        let took = Measured {
            seconds: 1.0,
            cpu_seconds: 1.0,
            writes: 12,
        };
        let round = Round {
            engine: took,
            bare: took,
            tcp: took,
            memcpy: took,
        };
        let case = |kib: u32| CaseResult::of(&Case::new("tcp", kib << 10, 1), 1, &[round]);
        let us = Microseconds {
            p50: 1.0,
            p99: 123.4,
        };
        let report = Report {
            libfabric: "1.17".into(),
            cases: vec![case(16), case(256)],
            latencies: vec![LatencyResult {
                provider: "tcp".into(),
                bytes: 64,
                samples: 1,
                engine_completion_us: us,
                bare_completion_us: us,
                engine_counted_us: us,
                bare_counted_us: us,
            }],
        };
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].len(), lines[3].len());
        assert_eq!(lines[3].len(), lines[4].len());
        assert!(text.contains("1.0/123.4"), "{text}");
    }
}

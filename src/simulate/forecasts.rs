//! `--forecasts`: how near the pool's forecasts of waits come. For a workload a line below the table; with `--bench` a table in Markdown
//! of the traces of a folder, at the capacities of the bench.

use std::path::Path;

use super::bench::{self, CAPACITIES};
use super::compare;
use super::progress::{clear_progress, progress};
use sim::replay::ForecastReport;

const DEVICES: [u32; 2] = [1, 4];

/// Prints a line for each trace, capacity and number of devices.
///
/// # Errors
/// A trace that cannot be read; a rule that the pool broke.
pub fn run(folder: &Path, seed: u64) -> Result<(), String> {
    println!(
        "| trace | devices | models that fit | waits | within a fifth | forecast by wait: 10 % | median | 90 % | with a range | right |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for trace in bench::traces() {
        for devices in DEVICES {
            for capacity in CAPACITIES {
                let label = format!("{trace} {capacity}‰ x{devices}");
                let setup = bench::setup(folder, trace, seed, capacity, devices)?;
                let report = compare::with_forecasts(&setup, false, &mut |done, day| {
                    progress(&label, done, day);
                })?;
                clear_progress();
                if let Some(broken) = report.broken.first() {
                    return Err(format!("{label}: {broken}"));
                }
                let found = report.forecasts.unwrap_or_default();
                println!(
                    "| {trace} | {devices} | {} % | {} | {:.1} % | {:.2} | {:.2} | {:.2} | {:.1} % | {:.1} % |",
                    capacity / 10,
                    found.waits,
                    percent(found.precise, &found),
                    ratio(found.ratio_p10),
                    ratio(found.ratio_p50),
                    ratio(found.ratio_p90),
                    percent(found.ranges, &found),
                    percent(found.right, &found),
                );
            }
        }
    }
    Ok(())
}

/// One line about the forecasts of a replay.
pub(crate) fn line(found: &ForecastReport) -> String {
    format!(
        "model-pool forecast {} waits of a second or longer: {:.1} % within a fifth (forecast by wait: {:.2} at 10 %, median {:.2}, {:.2} at 90 %), {:.1} % with a range, {:.1} % within a fifth or within the range",
        found.waits,
        percent(found.precise, found),
        ratio(found.ratio_p10),
        ratio(found.ratio_p50),
        ratio(found.ratio_p90),
        percent(found.ranges, found),
        percent(found.right, found),
    )
}

fn percent(count: u64, found: &ForecastReport) -> f64 {
    100.0 * count as f64 / found.waits.max(1) as f64
}

fn ratio(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_shares_and_the_spread_of_the_forecasts() {
        let found = ForecastReport {
            waits: 200,
            precise: 150,
            ranges: 60,
            right: 184,
            ratio_p10: 700,
            ratio_p50: 1_000,
            ratio_p90: 1_250,
        };
        let line = line(&found);
        for part in [
            "200 waits",
            "75.0 % within",
            "0.70",
            "1.25",
            "30.0 %",
            "92.0 %",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}

//! Formats times and sizes for people. Pure.

use std::time::Duration;

/// Formats as `0.31 s`, `4.2 s`, `48 s`, `3 min 20 s` or `2 h 5 min`.
pub fn seconds(time: Duration) -> String {
    let total = time.as_secs();
    match total {
        0 => format!("{:.2} s", time.as_secs_f64()),
        1..=9 => format!("{:.1} s", time.as_secs_f64()),
        10..=59 => format!("{total} s"),
        60..=3599 => two_units(total / 60, "min", total % 60, "s"),
        _ => two_units(total / 3600, "h", total % 3600 / 60, "min"),
    }
}

/// Formats as `2 h 5 min`, or `2 h`.
pub fn two_units(large: u64, unit: &str, small: u64, below: &str) -> String {
    match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {below}"),
    }
}

/// Formats as `512 B` or `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // Values that would round to 1024.0 are shown as 1.0 of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_most() {
        let cases = [
            (0, "0.00 s"),
            (310, "0.31 s"),
            (4_240, "4.2 s"),
            (48_900, "48 s"),
            (60_000, "1 min"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ];
        for (ms, text) in cases {
            assert_eq!(seconds(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn sizes_use_binary_units() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1536 << 20, "1.5 GiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text);
        }
    }
}

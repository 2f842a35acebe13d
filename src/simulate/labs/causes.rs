//! The labs on which the pool is beyond its limits relative to `lru`, each with the part of the rule that causes it: the lab is
//! played again without each part, and the cause is the part without which the figure is lowest.

use super::estimate::Estimate;
use super::lab::{Compared, Cost, Lab, PARTS, cost};
use super::report::called;

/// The limits relative to `lru`. Unserved requests may not be more with 90 % confidence.
const WAIT_MAX: f64 = 1.05;
const P99_MAX: f64 = 1.10;

/// A figure beyond its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Beyond {
    Wait,
    P99,
    Unserved,
}

impl Beyond {
    const ALL: [Beyond; 3] = [Beyond::Wait, Beyond::P99, Beyond::Unserved];

    fn name(self) -> &'static str {
        match self {
            Beyond::Wait => "wait",
            Beyond::P99 => "p99",
            Beyond::Unserved => "unserved",
        }
    }

    fn figure(self, cell: &Compared) -> Estimate {
        match self {
            Beyond::Wait => cell.wait,
            Beyond::P99 => cell.p99,
            Beyond::Unserved => cell.unserved_more,
        }
    }

    fn is_in(self, cell: &Compared) -> bool {
        match self {
            Beyond::Wait => cell.wait.value > WAIT_MAX,
            Beyond::P99 => cell.p99.value > P99_MAX,
            Beyond::Unserved => cell.unserved_more.is_above(0.0),
        }
    }

    fn limit(self) -> f64 {
        match self {
            Beyond::Wait => WAIT_MAX,
            Beyond::P99 => P99_MAX,
            Beyond::Unserved => 0.0,
        }
    }
}

/// Prints every figure beyond its limit with its cause. The costs are by lab and seed.
///
/// # Errors
/// A rule that the pool broke.
pub(super) fn print(
    labs: &[Lab],
    ours: &[Vec<Cost>],
    lru: &[Vec<Cost>],
    seed: u64,
) -> Result<(), String> {
    let cells: Vec<Compared> = ours
        .iter()
        .zip(lru)
        .map(|(ours, lru)| Compared::new(ours, lru))
        .collect();
    let counts = Beyond::ALL.map(|kind| cells.iter().filter(|cell| kind.is_in(cell)).count());
    println!(
        "\nOf {} labs, the wait is above {WAIT_MAX} in {}, p99 above {P99_MAX} in {}, and more requests are unserved with 90 % confidence in {}.\n",
        labs.len(),
        counts[0],
        counts[1],
        counts[2]
    );
    if counts.iter().all(|count| *count == 0) {
        return Ok(());
    }
    println!(
        "| lab | figure | by `lru` | with 90 % confidence above | cause |\n|---|---|--:|--:|---|"
    );
    for ((lab, cell), lru) in labs.iter().zip(&cells).zip(lru) {
        let beyond: Vec<Beyond> = Beyond::ALL
            .into_iter()
            .filter(|kind| kind.is_in(cell))
            .collect();
        if beyond.is_empty() {
            continue;
        }
        let without = without_each_part(*lab, lru, seed)?;
        for kind in beyond {
            let Estimate { value, low, .. } = kind.figure(cell);
            println!(
                "| {} | {} | {value:.3} | {low:.3} | {} |",
                called(*lab).trim_end_matches(':'),
                kind.name(),
                cause(kind, value, &without)
            );
        }
    }
    println!();
    Ok(())
}

/// The figures of the pool without each part.
fn without_each_part(
    lab: Lab,
    lru: &[Cost],
    seed: u64,
) -> Result<Vec<(&'static str, Compared)>, String> {
    let of_part = |name: &'static str| -> Result<(&'static str, Compared), String> {
        let rule = format!("without {name}");
        let seeds = seed..seed + lru.len() as u64;
        let costs: Vec<Cost> = seeds
            .map(|seed| cost(lab, &rule, seed))
            .collect::<Result<_, _>>()?;
        Ok((name, Compared::new(&costs, lru)))
    };
    PARTS.iter().map(|(_, name)| of_part(name)).collect()
}

/// The part without which the figure is lowest, if it makes a difference: at least half of the distance to `lru`.
fn cause(kind: Beyond, value: f64, without: &[(&'static str, Compared)]) -> String {
    let figures = without
        .iter()
        .map(|(name, cell)| (*name, kind.figure(cell).value));
    let best = figures.min_by(|one, other| one.1.total_cmp(&other.1));
    let Some((name, least)) = best else {
        return "-".to_owned();
    };
    let base = if kind == Beyond::Unserved { 0.0 } else { 1.0 };
    let half = base + (value - base) / 2.0;
    if least <= half.max(kind.limit().min(value)) && least < value {
        format!("{name}: {least:.3} without it")
    } else {
        format!("no single part: {least:.3} without {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(waited: f64, unserved: u64) -> Compared {
        let cost = |waited: f64, unserved: u64| Cost {
            waited,
            unserved,
            requests: 1_000,
            ..Cost::default()
        };
        let lru = [cost(99_000.0, 0), cost(99_000.0, 0)];
        Compared::new(&[cost(waited, unserved), cost(waited, unserved)], &lru)
    }

    #[test]
    fn a_figure_exceeds_its_limit_by_value_or_with_confidence() {
        assert!(!Beyond::Wait.is_in(&cell(103_000.0, 0)));
        assert!(Beyond::Wait.is_in(&cell(106_000.0, 0)));
        assert!(!Beyond::Unserved.is_in(&cell(99_000.0, 0)));
        assert!(Beyond::Unserved.is_in(&cell(99_000.0, 3)));
        assert!(!Beyond::P99.is_in(&cell(200_000.0, 0)));
    }

    #[test]
    fn the_cause_is_the_component_whose_removal_lowers_the_figure_most() {
        let without = [
            ("turns", cell(98_000.0, 0)),
            ("shadows", cell(109_000.0, 0)),
        ];
        let found = cause(Beyond::Wait, 1.1, &without);
        assert_eq!(found, "turns: 0.990 without it");
        let none = [
            ("turns", cell(108_000.0, 0)),
            ("shadows", cell(109_000.0, 0)),
        ];
        let found = cause(Beyond::Wait, 1.1, &none);
        assert_eq!(found, "no single part: 1.090 without turns");
    }
}

//! `--labs --heat-map`: one character for each lab. The pool's wait, p99 and unserved requests relative to `lru`, then the waits of
//! the other rules, the totals of all rules, and the labs beyond the limits with the part of the rule that causes each.

use std::fmt::Write;

use super::causes;
use super::lab::{LOADS, Lab, RULES, USE_PERCENT, all};
use super::report::{Found, ratios, table, waited};

/// Darker for more, relative to `lru`.
const SHADES: [(f64, char); 6] = [
    (0.90, '.'),
    (0.98, '-'),
    (1.02, '='),
    (1.05, '+'),
    (1.10, '#'),
    (f64::INFINITY, '@'),
];

/// More unserved requests than with `lru`, in a thousand requests.
const UNSERVED: [(f64, char); 6] = [
    (-10.0, '.'),
    (-1.0, '-'),
    (1.0, '='),
    (5.0, '+'),
    (10.0, '#'),
    (f64::INFINITY, '@'),
];

/// The number of maps side by side in a line.
const SIDE_BY_SIDE: usize = 4;

fn shade(shades: &[(f64, char)], value: f64) -> char {
    let of = shades.iter().find(|(below, _)| value < *below);
    of.map_or('@', |(_, shade)| *shade)
}

/// A map: its title, and a character for each lab.
struct Map {
    title: String,
    cells: Vec<char>,
}

impl Map {
    fn new(title: &str, shades: &[(f64, char)], values: &[f64]) -> Map {
        Map {
            title: title.to_owned(),
            cells: values.iter().map(|value| shade(shades, *value)).collect(),
        }
    }
}

/// Prints the maps, the totals and the labs beyond the limits.
///
/// # Errors
/// A rule that the pool broke.
pub fn heat_map(seed: u64, seeds: u64) -> Result<(), String> {
    let labs: Vec<Lab> = all().collect();
    let rules: Vec<String> = RULES.map(str::to_owned).to_vec();
    let found = Found::new(&labs, rules, "lru", seed, seeds)?;
    let ours = found.rules.iter().position(|rule| rule == "model-pool");
    let ours = ours.expect("one of the rules");
    println!(
        "Relative to `lru`, {seeds} seeds from {seed}: `.` below 0.90, `-` below 0.98, `=` below 1.02, `+` below 1.05, `#` below 1.10, `@` above; unserved requests in a thousand more or fewer than with `lru`: `.` 10 fewer, `-` 1 fewer, `=` as many, `+` 1 more, `#` 5 more, `@` 10 more. Columns: loads of 30 ms, 3 s, 30 s and 3 min, each with 30, 70 and 120 % of the devices' time requested.\n"
    );
    println!("```text");
    let waits = ratios(&found.costs, found.base, waited);
    let p99 = ratios(&found.costs, found.base, |cost| cost.p99 + 1.0);
    let unserved: Vec<f64> = (0..labs.len())
        .map(|lab| more_unserved(&found, ours, lab))
        .collect();
    print_maps(
        &labs,
        &[
            Map::new("wait", &SHADES, &waits[ours]),
            Map::new("p99", &SHADES, &p99[ours]),
            Map::new("unserved", &UNSERVED, &unserved),
        ],
    );
    let others = (0..found.rules.len()).filter(|nth| *nth != ours && *nth != found.base);
    let others: Vec<Map> = others
        .map(|nth| Map::new(&found.rules[nth], &SHADES, &waits[nth]))
        .collect();
    println!("the waits of other rules\n");
    for maps in others.chunks(SIDE_BY_SIDE) {
        print_maps(&labs, maps);
    }
    println!("```\n");
    print!("{}", table(&found.rules, &found.costs, found.base));
    causes::print(&labs, &found.costs[ours], &found.costs[found.base], seed)
}

/// The additional unserved requests of a rule, compared with another rule, in a thousand requests.
fn more_unserved(found: &Found, rule: usize, lab: usize) -> f64 {
    let sum = |rule: usize| -> f64 {
        let costs = found.costs[rule][lab].iter();
        costs.map(|cost| cost.unserved as f64).sum()
    };
    let requests: u64 = found.costs[rule][lab]
        .iter()
        .map(|cost| cost.requests)
        .sum();
    1_000.0 * (sum(rule) - sum(found.base)) / requests.max(1) as f64
}

fn print_maps(labs: &[Lab], maps: &[Map]) {
    let titles = maps.iter().map(|map| format!("{:<17}", map.title));
    println!(
        "{}",
        format!("{:<26}{}", "", titles.collect::<String>()).trim_end()
    );
    let width = LOADS.len() * USE_PERCENT.len();
    for row in (0..labs.len()).step_by(width) {
        let Lab {
            models, devices, ..
        } = labs[row];
        let plural = if devices == 1 { "" } else { "s" };
        let shape = labs[row].shape.name();
        let on = format!("{shape:<9} {models:>2} on {devices} device{plural}");
        let mut line = format!("{on:<26}");
        for map in maps {
            let of_row = map.cells[row..row + width].chunks(USE_PERCENT.len());
            let of_row: Vec<String> = of_row.map(|cells| cells.iter().collect()).collect();
            let _ = write!(line, "{:<17}", of_row.join(" "));
        }
        println!("{}", line.trim_end());
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_wait_has_a_darker_shade() {
        let shades: String = [0.5, 0.95, 1.0, 1.03, 1.07, 9.0]
            .map(|ratio| shade(&SHADES, ratio))
            .iter()
            .collect();
        assert_eq!(shades, ".-=+#@");
        assert_eq!(shade(&UNSERVED, 0.0), '=');
        assert_eq!(shade(&UNSERVED, 50.0), '@');
    }

    #[test]
    fn each_row_of_the_map_has_one_lab_size() {
        let labs: Vec<Lab> = all().collect();
        let width = LOADS.len() * USE_PERCENT.len();
        for row in labs.chunks(width) {
            assert_eq!(row.len(), width);
            let same = |lab: &Lab| (lab.models, lab.devices, lab.shape);
            assert!(row.iter().all(|lab| same(lab) == same(&row[0])));
        }
    }
}

//! Prints the small-lab benchmark: the table of ratios with their certainty, and the ablation.

use std::fmt::Write;

use super::estimate::Estimate;
use super::lab::{Compared, Cost, Lab, PARTS, USE_PERCENT, all, compare, cost};

/// Prints the table of docs/internals/policy.md.
///
/// # Errors
/// A rule that the pool broke.
pub fn run_all(seed: u64, seeds: u64) -> Result<(), String> {
    println!(
        "The pool's wait by that of `lru`, in brackets its mean wait; {seeds} seeds from {seed}. `+`: above 1.0 with 90 % confidence; `-`: below 1.0 with 90 % confidence. Columns: seconds of service requested per second and device.\n"
    );
    println!("| requests | models | devices | load | 30 % | 70 % | 120 % |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let (mut labs, mut cells): (Vec<Lab>, Vec<Compared>) = (Vec::new(), Vec::new());
    for lab in all() {
        if lab.use_percent == USE_PERCENT[0] {
            let Lab {
                models,
                devices,
                load,
                ..
            } = lab;
            print!("| {} | {models} | {devices} | {load} |", lab.shape.name());
        }
        let cell = compare(lab, seed, seeds)?;
        let certain = match (cell.wait.is_above(1.0), cell.wait.high < 1.0) {
            (true, _) => " +",
            (_, true) => " -",
            _ => "",
        };
        print!(" {:.2}{certain} ({}) |", cell.wait.value, cell.mean_wait);
        if lab.use_percent == USE_PERCENT[2] {
            println!();
        }
        labs.push(lab);
        cells.push(cell);
    }
    summary(&cells);
    worse(&labs, &cells);
    Ok(())
}

fn summary(cells: &[Compared]) {
    let mean = |of: fn(&Compared) -> f64| geometric_mean(cells.iter().map(of));
    let above = |bound: f64, is: fn(&Estimate, f64) -> bool| {
        cells.iter().filter(move |cell| is(&cell.wait, bound))
    };
    let by_value: fn(&Estimate, f64) -> bool = |estimate, bound| estimate.value > bound;
    println!(
        "\n{} kinds of lab: wait {:.3}, reload {:.3} (geometric means). The wait is above 1.0 in {}, in {} of them with 90 % confidence; above 1.02 in {}; above 1.1 in {}, in {} with 90 % confidence; below 1.0 with 90 % confidence in {}.",
        cells.len(),
        mean(|cell| cell.wait.value),
        mean(|cell| cell.reload.value),
        above(1.0, by_value).count(),
        above(1.0, Estimate::is_above).count(),
        above(1.02, by_value).count(),
        above(1.1, by_value).count(),
        above(1.1, Estimate::is_above).count(),
        cells.iter().filter(|cell| cell.wait.high < 1.0).count(),
    );
    let lost = |nth: usize| cells.iter().map(|cell| cell.unserved[nth]).sum::<u64>();
    let more = cells
        .iter()
        .filter(|cell| cell.unserved[0] > cell.unserved[1]);
    let certain = cells.iter().filter(|cell| cell.unserved_more.is_above(0.0));
    let requests: u64 = cells.iter().map(|cell| cell.requests).sum();
    println!(
        "More requests unserved than with `lru` in {}, in {} with 90 % confidence; {} of {requests} in total, {} with `lru`.",
        more.count(),
        certain.count(),
        lost(0),
        lost(1),
    );
}

/// The labs on which the pool waits longer than `lru`, or serves fewer. Repeating this with other seeds distinguishes a weakness of
/// the rule from chance.
fn worse(labs: &[Lab], cells: &[Compared]) {
    let list = |is: fn(&Compared) -> bool, figure: fn(&Compared) -> String| {
        let pairs = labs.iter().zip(cells);
        let found: Vec<String> = pairs
            .filter(|(_, cell)| is(cell))
            .map(|(lab, cell)| format!("{} {}", called(*lab), figure(cell)))
            .collect();
        if found.is_empty() {
            "none".to_owned()
        } else {
            found.join("; ")
        }
    };
    let interval = |cell: &Compared| {
        let Estimate { low, value, high } = cell.wait;
        format!("{value:.3} ({low:.3} to {high:.3})")
    };
    println!(
        "Above 1.0: {}.",
        list(|cell| cell.wait.value > 1.0, interval)
    );
    let more = |cell: &Compared| format!("{} to {}", cell.unserved[0], cell.unserved[1]);
    println!(
        "More unserved: {}.",
        list(|cell| cell.unserved[0] > cell.unserved[1], more)
    );
}

pub(super) fn called(lab: Lab) -> String {
    let Lab {
        models,
        devices,
        load,
        use_percent,
        ..
    } = lab;
    format!(
        "{} {models} on {devices}, {load}, {use_percent} %:",
        lab.shape.name()
    )
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| {
        (sum + ratio.ln(), count + 1.0)
    });
    (sum / f64::max(count, 1.0)).exp()
}

/// Prints the cost of the pool without each of its parts, relative to the complete rule.
///
/// # Errors
/// A rule that the pool broke.
pub fn ablation(seed: u64, seeds: u64) -> Result<(), String> {
    let labs: Vec<Lab> = all().collect();
    let without = PARTS.iter().map(|(_, name)| format!("without {name}"));
    let rules = ["model-pool".to_owned()].into_iter().chain(without);
    println!("By `model-pool` with all its parts, {seeds} seeds from {seed}:\n");
    let found = Found::new(&labs, rules.collect(), "model-pool", seed, seeds)?;
    print!("{}", table(&found.rules, &found.costs, found.base));
    Ok(())
}

/// The costs by rule, lab and seed.
pub(super) struct Found {
    pub(super) rules: Vec<String>,
    pub(super) costs: Vec<Vec<Vec<Cost>>>,
    pub(super) base: usize,
}

impl Found {
    pub(super) fn new(
        labs: &[Lab],
        rules: Vec<String>,
        base: &str,
        seed: u64,
        seeds: u64,
    ) -> Result<Found, String> {
        let base = rules
            .iter()
            .position(|rule| rule == base)
            .expect("one of them");
        let of_lab = |lab: &Lab, rule: &str| -> Result<Vec<Cost>, String> {
            let seeds = seed..seed + seeds;
            seeds.map(|seed| cost(*lab, rule, seed)).collect()
        };
        let of_rule = |rule: &String| labs.iter().map(|lab| of_lab(lab, rule)).collect();
        let costs: Vec<Vec<Vec<Cost>>> =
            rules.iter().map(of_rule).collect::<Result<_, String>>()?;
        Ok(Found { rules, costs, base })
    }
}

/// The cost of each rule relative to the one at `base`. `costs` is indexed by rule, then lab or workload, then seed.
pub fn table(rules: &[String], costs: &[Vec<Vec<Cost>>], base: usize) -> String {
    let mut out = String::from(
        "| rule | wait | above 1.0 | above 1.02 | above 1.1 | reload | unserved |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    let waits = ratios(costs, base, waited);
    let reloads = ratios(costs, base, |cost| cost.reload + 1.0);
    for (nth, rule) in rules.iter().enumerate() {
        let waits = &waits[nth];
        let above = |bound: f64| waits.iter().filter(|wait| **wait > bound).count();
        let unserved: u64 = costs[nth].iter().flatten().map(|cost| cost.unserved).sum();
        let _ = writeln!(
            out,
            "| {rule} | {:.3} | {} | {} | {} | {:.3} | {unserved} |",
            geometric_mean(waits.iter().copied()),
            above(1.0),
            above(1.02),
            above(1.1),
            geometric_mean(reloads[nth].iter().copied()),
        );
    }
    out
}

/// Adds a millisecond per request, as in the table of ratios.
pub(super) fn waited(cost: &Cost) -> f64 {
    cost.waited + cost.requests as f64
}

/// The ratios to the rule at `base`, by rule and lab.
pub(super) fn ratios(
    costs: &[Vec<Vec<Cost>>],
    base: usize,
    of: impl Fn(&Cost) -> f64,
) -> Vec<Vec<f64>> {
    let sum = |seeds: &Vec<Cost>| seeds.iter().map(&of).sum::<f64>();
    let of_rule = |labs: &Vec<Vec<Cost>>| {
        let pairs = labs.iter().zip(&costs[base]);
        pairs.map(|(ours, base)| sum(ours) / sum(base)).collect()
    };
    costs.iter().map(of_rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_the_cost_of_each_rule_relative_to_the_default() {
        let cost = |waited: f64, reload: f64, unserved: u64| Cost {
            waited,
            reload,
            unserved,
            requests: 1,
            ..Cost::default()
        };
        // Two labs with two seeds each.
        let all = vec![
            vec![cost(9.0, 9.0, 0), cost(9.0, 0.0, 1)],
            vec![cost(49.0, 99.0, 2); 2],
        ];
        let less = vec![
            vec![cost(19.0, 9.0, 5), cost(19.0, 0.0, 0)],
            vec![cost(24.0, 49.0, 0); 2],
        ];
        let rules = ["all".to_owned(), "less".to_owned()];
        let table = table(&rules, &[all, less], 0);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        let expected = [
            "| all | 1.000 | 0 | 0 | 0 | 1.000 | 5 |",
            "| less | 1.000 | 1 | 1 | 1 | 0.707 | 5 |",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_geometric_mean_of_a_half_and_two_is_one() {
        assert!((geometric_mean([0.5, 2.0].into_iter()) - 1.0).abs() < 1e-12);
    }
}

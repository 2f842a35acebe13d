//! `--bench --shares`: three groups whose requests always wait, with requests as long as in each trace. They share one model,
//! then the models of the trace on a device for 35 % of them. Compares first come, keys in turn and groups. Prints Markdown.

use std::path::Path;

use super::bench;
use super::progress::{clear_progress, progress};
use super::setup::Setup;
use pool::{Group, GroupId, Groups, KeyId, ModelId, ModelSpec, Span, Time};
use sim::replay::{Clients, Options, Report, Response, Scenario, run_clients};

/// A group of callers, each key with the same number of clients.
struct Callers {
    name: &'static str,
    weight: u32,
    keys: u64,
    /// Its requests are this many times as long as in the trace.
    length: u64,
}

/// The course sends a hundred times as many requests as the others, and each is ten times as long.
const CALLERS: [Callers; 3] = [
    Callers {
        name: "guests",
        weight: 1,
        keys: 4,
        length: 1,
    },
    Callers {
        name: "physics",
        weight: 2,
        keys: 4,
        length: 1,
    },
    Callers {
        name: "course",
        weight: 1,
        keys: 400,
        length: 10,
    },
];
const CLIENTS_PER_KEY: u32 = 4;
const SEATS: u32 = 8;
const CAPACITY_PERMILLE: u64 = 350;
/// Each key repeats this many requests of a trace. Keys begin at different requests.
const REQUESTS: usize = 500;
/// Service counts from here: every group waits, and the pool knows how long requests take.
const COUNTED_FROM: Time = Time(6 * 3_600_000);
const DAY_MS: u64 = 86_400_000;
/// Days of one model, and of many: a turn of a model takes longer to decide than a seat.
const DAYS: (u64, u64) = (7, 2);
const YEAR: Span = Span::from_secs(365 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    FirstCome,
    Keys,
    Groups,
}

const RULES: [(Rule, &str); 3] = [
    (Rule::FirstCome, "first come"),
    (Rule::Keys, "keys in turn"),
    (Rule::Groups, "groups"),
];

/// Prints a table for one model, and another for the models of a trace.
///
/// # Errors
/// A trace that cannot be read; a rule that the pool broke.
pub fn run(folder: &Path, seed: u64) -> Result<(), String> {
    for is_shared in [true, false] {
        let (place, days) = if is_shared {
            (format!("One model with {SEATS} seats"), DAYS.0)
        } else {
            let percent = CAPACITY_PERMILLE / 10;
            let place = format!("The models of the trace, of which {percent} % fit on one device");
            (place, DAYS.1)
        };
        println!("\n**{place}, {days} days**\n");
        print!("| trace | rule |");
        for callers in &CALLERS {
            print!(" {} |", callers.name);
        }
        println!(" Jain's index | service by first come | gap by bound |");
        println!("|---|---|--:|--:|--:|--:|--:|--:|");
        for trace in bench::traces() {
            let scene = Scene::of_trace(folder, trace, seed, is_shared)?;
            let mut base = 0;
            for (rule, name) in RULES {
                let label = format!("{trace} {name}");
                progress(&label, 0, 0.0);
                let found = scene.play(rule, COUNTED_FROM, Time(days * DAY_MS))?;
                clear_progress();
                if rule == Rule::FirstCome {
                    base = found.total();
                }
                println!("| {trace} | {name} |{}", found.row(&scene, base));
            }
        }
    }
    Ok(())
}

/// Models, and the requests of a trace for them.
struct Scene {
    scenario: Scenario,
    requests: Vec<(ModelId, Span)>,
    /// Every request is for the same model.
    is_shared: bool,
}

impl Scene {
    fn of_trace(folder: &Path, trace: &str, seed: u64, is_shared: bool) -> Result<Scene, String> {
        let setup = bench::setup(folder, trace, seed, CAPACITY_PERMILLE, 1)?;
        Scene::new(&setup, is_shared)
    }

    fn new(setup: &Setup, is_shared: bool) -> Result<Scene, String> {
        let arrivals = setup.arrivals().map_err(|error| error.to_string())?;
        let arrivals = arrivals.take(REQUESTS * CALLERS.len());
        let mut requests: Vec<(ModelId, Span)> = arrivals
            .map(|arrival| (arrival.model, arrival.service))
            .collect();
        let mut scenario = setup.scenario.clone();
        if is_shared {
            requests
                .iter_mut()
                .for_each(|(model, _)| *model = ModelId(0));
            scenario.models.truncate(1);
        }
        for spec in &mut scenario.models {
            *spec = ModelSpec {
                seats_per_replica: SEATS,
                queue_timeout: YEAR,
                ..spec.clone()
            };
        }
        Ok(Scene {
            scenario,
            requests,
            is_shared,
        })
    }

    fn clients(&self) -> Vec<(usize, Clients)> {
        let mut all = Vec::new();
        for (nth, callers) in CALLERS.iter().enumerate() {
            for _ in 0..callers.keys {
                let key = all.len();
                let from = key * 37 % self.requests.len();
                let own = self.requests[from..].iter().chain(&self.requests[..from]);
                let own = own.take(REQUESTS);
                let longer =
                    |(model, service): &(ModelId, Span)| (*model, Span(service.0 * callers.length));
                let clients = Clients {
                    key: KeyId(key as u64 + 1),
                    count: CLIENTS_PER_KEY,
                    from: Time(key as u64),
                    requests: own.map(longer).collect(),
                    think: Span::ZERO,
                    late: (0, Span::ZERO),
                };
                all.push((nth, clients));
            }
        }
        all
    }

    /// Counts the service of each group between two times.
    fn play(&self, rule: Rule, from: Time, until: Time) -> Result<Found, String> {
        let (of_group, clients): (Vec<usize>, Vec<Clients>) = self.clients().into_iter().unzip();
        let mut scenario = self.scenario.clone();
        if rule == Rule::Groups {
            scenario.groups = groups(&of_group);
        }
        let options = Options {
            hides_keys: rule == Rule::FirstCome,
            ..Options::default()
        };
        let mut found = Found::default();
        let mut watch = |response: Response| {
            if response.seated >= from && response.seated < until {
                let group = of_group[(response.key.0 - 1) as usize];
                found.served(group, response.service);
            }
        };
        let report: Report = run_clients(&scenario, &clients, until, &options, &mut watch);
        match report.broken.first() {
            Some(broken) => Err(format!("{rule:?}: {broken}")),
            None => Ok(found),
        }
    }

    /// The bound of F1 for a group of weight 1, in milliseconds of a seat. No sibling has a smaller weight.
    fn bound(&self) -> u64 {
        let lengths = CALLERS.iter().map(|callers| callers.length);
        let longest = self.requests.iter().map(|(_, service)| service.0);
        let longest = longest.max().unwrap_or(0) * lengths.max().unwrap_or(1);
        4 * (u64::from(SEATS) + 1) * longest
    }
}

fn groups(of_group: &[usize]) -> Groups {
    let group = |(callers, nth): (&Callers, u32)| Group {
        id: GroupId(nth),
        name: callers.name.to_owned(),
        parent: None,
        weight: callers.weight,
        reserved_permille: 0,
    };
    let all = CALLERS.iter().zip(0..).map(group).collect();
    let members = of_group.iter().zip(1..);
    let members = members.map(|(&nth, key)| (KeyId(key), GroupId(nth as u32)));
    Groups::new(all, members).expect("weights of 1 and 2, and one group for each key")
}

/// The least and the largest difference of the service by weight of two groups.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    least: i128,
    most: i128,
}

/// The service of each group, in milliseconds of a seat.
#[derive(Debug, Default)]
struct Found {
    service: [u64; CALLERS.len()],
    /// By pairs of groups: 0 and 1, 0 and 2, 1 and 2.
    differences: [Difference; 3],
}

impl Found {
    fn served(&mut self, group: usize, service: Span) {
        self.service[group] += service.0;
        let by_weight = |nth: usize| i128::from(self.service[nth] / u64::from(CALLERS[nth].weight));
        for (nth, (one, other)) in [(0, 1), (0, 2), (1, 2)].into_iter().enumerate() {
            let apart = by_weight(one) - by_weight(other);
            let difference = &mut self.differences[nth];
            difference.least = difference.least.min(apart);
            difference.most = difference.most.max(apart);
        }
    }

    fn total(&self) -> u64 {
        self.service.iter().sum()
    }

    /// The largest change of a difference over any interval.
    fn gap(&self) -> u64 {
        let changes = self.differences.iter();
        let changes = changes.map(|difference| difference.most - difference.least);
        u64::try_from(changes.max().unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// (Σ x)² / (n Σ x²) of the service by weight x (Jain, Chiu and Hawe 1984): 1 if every group gets its share, 1/n if one group
    /// gets everything.
    fn fairness(&self) -> f64 {
        let each = self.service.iter().zip(&CALLERS);
        let each = each.map(|(service, callers)| *service as f64 / f64::from(callers.weight));
        let (sum, squares) = each.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (CALLERS.len() as f64 * squares).max(f64::MIN_POSITIVE)
    }

    fn row(&self, scene: &Scene, base: u64) -> String {
        let total = self.total().max(1) as f64;
        let shares = self.service.iter();
        let shares = shares.map(|service| format!(" {:.1} % |", 100.0 * *service as f64 / total));
        // F1 bounds the gap between groups that wait for the same model.
        let gap = if scene.is_shared {
            format!("{:.3}", self.gap() as f64 / scene.bound() as f64)
        } else {
            String::new()
        };
        format!(
            "{} {:.4} | {:.3} | {gap} |",
            shares.collect::<String>(),
            self.fairness(),
            total / base.max(1) as f64
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{MODELS_OF_CROWD, Reading, Workload};

    fn scene(is_shared: bool) -> Scene {
        let reading = Reading {
            seed: 7,
            from: Span::ZERO,
            to: Span(u64::MAX),
            limit: u64::MAX,
            stretch: 1.0,
            crowd: MODELS_OF_CROWD,
        };
        let workload = Workload::open("zipf:requests=2000,days=1,models=3", reading);
        let setup = Setup::drawn(workload.expect("a workload"), 7, 1, CAPACITY_PERMILLE);
        Scene::new(&setup, is_shared).expect("a scene")
    }

    #[test]
    fn f1_groups_get_their_weights_where_first_come_and_keys_in_turn_serve_the_course_alone() {
        let scene = scene(true);
        let (from, until) = (Time(3_600_000), Time(12 * 3_600_000));
        let play = |rule| scene.play(rule, from, until).expect("no broken rule");
        let (first_come, keys, groups) =
            (play(Rule::FirstCome), play(Rule::Keys), play(Rule::Groups));
        for unfair in [&first_come, &keys] {
            assert!(unfair.fairness() < 0.6, "{unfair:?}");
            assert!(unfair.service[2] * 10 > unfair.total() * 8, "{unfair:?}");
        }
        assert!(groups.fairness() >= 0.99, "{groups:?}");
        assert!(groups.gap() <= scene.bound(), "{groups:?}");
        let (total, base) = (groups.total(), first_come.total());
        assert!(total * 100 >= base * 99, "{total} and {base}");
    }

    #[test]
    fn a_row_has_the_share_of_each_group_and_the_bound_where_it_holds() {
        let scene = scene(true);
        let mut found = Found::default();
        for (group, seconds) in [(0, 100), (1, 200), (2, 100)] {
            found.served(group, Span::from_secs(seconds));
        }
        assert!((found.fairness() - 1.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.gap(), 100_000);
        let row = found.row(&scene, 400_000);
        let start = " 25.0 % | 50.0 % | 25.0 % | 1.0000 | 1.000 | 0.";
        assert!(row.starts_with(start), "{row}");
    }
}

//! A lower bound for the loads of batches: how few any schedule needs that knows all times in advance and keeps B4, while the requests use
//! the memory as they do without batches. It follows from the lists and the memory, not from a replay with batches.

use alloc::vec::Vec;

use super::report::{BatchResult, Holding};
use super::scenario::{BatchTimes, Scenario};
use pool::{Bytes, DeviceId, DeviceReading, ModelId, ModelSpec, Priority, Span, Time};

/// An idle replica may leave for batches after this many times its load and its stop (P6).
const SWAPS_UNTIL_YIELD: u64 = 3;

/// A time with room for a model on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: Time,
    to: Time,
}

/// The fewest loads for the batches of all models. `holdings` come from the same replay without batches; `results` say how much of
/// each batch has run, and the same amount is to run here.
///
/// For each model, the longest times with room count, each for one load, until they hold all of its requests. A time in which the model is
/// loaded for requests costs no load. Models do not compete for the same time, so no schedule needs fewer loads.
pub fn least_batch_loads(
    scenario: &Scenario,
    holdings: &[Holding],
    results: &[BatchResult],
) -> u64 {
    let mut models: Vec<ModelId> = results.iter().map(|result| result.arrival.model).collect();
    models.sort();
    models.dedup();
    let loads = models.into_iter().map(|model| {
        let own = results
            .iter()
            .filter(|result| result.arrival.model == model);
        of_model(scenario, holdings, model, own)
    });
    loads.sum()
}

fn of_model<'a>(
    scenario: &Scenario,
    holdings: &[Holding],
    model: ModelId,
    results: impl Iterator<Item = &'a BatchResult>,
) -> u64 {
    let spec = &scenario.models[model.0 as usize];
    let (mut needs, mut from, mut to) = (0, Time(u64::MAX), Time(0));
    for result in results {
        let arrival = &result.arrival;
        let ran = arrival.lines.saturating_sub(result.left);
        needs += ran.saturating_mul(arrival.service.0);
        from = from.min(arrival.at);
        to = to.max(result.ended.unwrap_or(result.deadline()));
    }
    let needs = needs / u64::from(spec.seats_per_replica.max(1));
    let period = Window { from, to };
    let mut gains: Vec<u64> = Vec::new();
    let mut free = 0;
    for (id, reading) in &scenario.devices {
        let here = holdings.iter().filter(|holding| holding.device == *id);
        let (own, others): (Vec<&Holding>, Vec<&Holding>) =
            here.partition(|holding| holding.model == model);
        let mut windows = windows(scenario, *id, reading, spec, &others, period);
        // Its own replica stays as long as there is room (B6).
        let loaded = own.iter().filter_map(|holding| {
            let from = holding.ready?.max(period.from);
            let to = holding.to.min(period.to);
            (from < to).then_some(Window { from, to })
        });
        let loaded: Vec<Window> = loaded.collect();
        windows.extend(&loaded);
        windows.sort_by_key(|window| (window.from, window.to));
        let mut joined: Vec<Window> = Vec::new();
        for window in windows {
            match joined.last_mut().filter(|last| last.to >= window.from) {
                Some(last) => last.to = last.to.max(window.to),
                None => joined.push(window),
            }
        }
        for window in joined {
            // From the time at which requests have loaded it, it needs no other load.
            let here = loaded
                .iter()
                .filter(|loaded| loaded.from < window.to && window.from < loaded.to);
            let loaded_at = here.map(|loaded| loaded.from.max(window.from)).min();
            let until = loaded_at.unwrap_or(window.to);
            free += window.to.since(until).0;
            let gain = until.since(window.from).0.saturating_sub(spec.reload.0);
            gains.extend((gain > 0).then_some(gain));
        }
    }
    gains.sort_unstable_by_key(|gain| core::cmp::Reverse(*gain));
    let mut left = needs.saturating_sub(free);
    let mut loads = 0;
    for gain in gains {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(gain);
        loads += 1;
    }
    loads
}

/// The times within the period in which the others leave enough memory for the model.
fn windows(
    scenario: &Scenario,
    id: DeviceId,
    reading: &DeviceReading,
    spec: &ModelSpec,
    others: &[&Holding],
    period: Window,
) -> Vec<Window> {
    let is_allowed = spec.allowed.as_ref().is_none_or(|all| all.contains(&id));
    let capacity = reading.total.saturating_sub(reading.headroom);
    let capacity = capacity.saturating_sub(reading.foreign);
    if !is_allowed || capacity < spec.bytes_per_device {
        return Vec::new();
    }
    let spare = capacity.saturating_sub(spec.bytes_per_device);
    // Changes of the held memory: what is released at a time goes first.
    let mut changes: Vec<(Time, bool, Bytes)> = Vec::new();
    for holding in others {
        for (from, to) in held(scenario, holding) {
            changes.push((from, true, holding.bytes));
            changes.push((to, false, holding.bytes));
        }
    }
    changes.sort();
    let mut found = Vec::new();
    let (mut held, mut since) = (Bytes::ZERO, Some(period.from));
    for (at, takes, bytes) in changes {
        held = if takes {
            held + bytes
        } else {
            held.saturating_sub(bytes)
        };
        let at = at.max(period.from).min(period.to);
        match (since, held <= spare) {
            (Some(from), false) => {
                found.push(Window { from, to: at });
                since = None;
            }
            (None, true) => since = Some(at),
            _ => {}
        }
    }
    found.extend(since.map(|from| Window {
        from,
        to: period.to,
    }));
    found.retain(|window| window.from < window.to);
    found
}

/// The times in which a replica keeps its memory from batches: while it loads, while it is used, and until it has been idle for long.
fn held(scenario: &Scenario, holding: &Holding) -> Vec<(Time, Time)> {
    let spec = &scenario.models[holding.model.0 as usize];
    let may_leave = scenario.batch_times != BatchTimes::Never && spec.priority == Priority(0);
    if !may_leave {
        return vec![(holding.from, holding.to)];
    }
    let after = Span((spec.reload.0 + scenario.stop_takes.0).saturating_mul(SWAPS_UNTIL_YIELD));
    let mut times = Vec::new();
    let mut from = holding.from;
    for (since, until) in &holding.idle {
        let leaves = *since + after;
        if leaves < *until {
            times.push((from, leaves));
            from = *until;
        }
    }
    if from < holding.to {
        times.push((from, holding.to));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::super::scenario::BatchArrival;
    use super::super::tests::scenario;
    use super::*;
    use pool::BatchEnd;

    const MINUTE: u64 = 60_000;
    const GIB: u64 = Bytes::GIB;

    /// A holding of model 1 on the first device, in minutes, with the times in which it is idle.
    fn holding(from: u64, to: u64, idle: &[(u64, u64)]) -> Holding {
        let at = |minute: u64| Time(minute * MINUTE);
        Holding {
            device: DeviceId(0),
            model: ModelId(1),
            bytes: Bytes(10 * GIB),
            from: at(from),
            ready: Some(at(from)),
            to: at(to),
            reason: "it leaves".into(),
            idle: idle.iter().map(|(from, to)| (at(*from), at(*to))).collect(),
        }
    }

    /// A batch of model 0 that has run for these minutes in the first three hours.
    fn result(minutes: u64) -> BatchResult {
        BatchResult {
            arrival: BatchArrival {
                at: Time(0),
                model: ModelId(0),
                lines: minutes,
                service: Span(MINUTE),
                window: Span(180 * MINUTE),
            },
            ended: None,
            left: 0,
            forecast: BatchEnd::Unknown,
            promised: None,
            warned: None,
        }
    }

    fn least(holdings: &[Holding], minutes: u64) -> u64 {
        let mut scene = scenario(1, &[(10, 60), (10, 60)]);
        scene.models[0].seats_per_replica = 1;
        least_batch_loads(&scene, holdings, &[result(minutes)])
    }

    #[test]
    fn the_longest_times_with_room_hold_the_requests_and_each_costs_a_load() {
        assert_eq!(least(&[], 179), 1);
        // There is room for 60, 20 and 70 minutes, of which each load takes one.
        let busy = [holding(60, 70, &[]), holding(90, 110, &[])];
        assert_eq!(
            [69, 70, 128, 129, 147].map(|minutes| least(&busy, minutes)),
            [1, 2, 2, 3, 3]
        );
        assert_eq!(least(&busy, 170), 3, "there is no more room");
    }

    #[test]
    fn an_idle_replica_leaves_its_memory_after_three_swaps_and_takes_it_back_with_its_next_request()
    {
        let idle = [holding(0, 180, &[(10, 100), (110, 112)])];
        // From minute 13 to minute 100.
        assert_eq!([86, 87].map(|minutes| least(&idle, minutes)), [1, 1]);
        let busy = [holding(0, 180, &[])];
        assert_eq!(least(&busy, 1), 0, "no schedule could load it");
    }

    #[test]
    fn a_model_that_requests_have_loaded_needs_no_load_while_there_is_room() {
        let own = Holding {
            model: ModelId(0),
            ..holding(20, 30, &[])
        };
        assert_eq!(least(core::slice::from_ref(&own), 100), 0);
        // Another model takes the memory from minute 40 to minute 60.
        let all = [own, holding(40, 60, &[])];
        assert_eq!([20, 21].map(|minutes| least(&all, minutes)), [0, 1]);
    }
}

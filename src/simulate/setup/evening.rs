//! The evening cleanups of a replay: the cleanups of the configuration of `--pool`, at their times of day.

use crate::environment::{Evenings, FindEvenings};
use crate::workload::Workload;
use config::{Config, EveningMode};
use sim::replay::Scenario;

/// Adds the cleanups and reopenings between the first and the last request.
pub(super) fn add(
    scenario: &mut Scenario,
    config: &Config,
    workload: &Workload,
    find: FindEvenings<'_>,
    notices: &mut Vec<String>,
) -> Result<(), String> {
    if config.evening.cleanup.is_none() && config.evening.reopen.is_none() {
        return Ok(());
    }
    let arrivals = workload.arrivals().map_err(|fault| fault.to_string())?;
    let Some(last) = arrivals.last() else {
        return Ok(());
    };
    let start = workload.start_ms();
    let evenings = find(config, start, pool::Span(last.at.0))?;
    if let Some(count) = Some(evenings.cleanups.len()).filter(|count| *count > 0) {
        let assumed = match start {
            Some(_) => "",
            None => ", which is assumed because the workload has no dates",
        };
        notices.push(format!(
            "the pool is emptied {count} time{} (evening.cleanup); the replay begins on {}{assumed}; leave the evenings out with --set evening.cleanup=null",
            if count == 1 { "" } else { "s" },
            evenings.start,
        ));
    }
    apply(scenario, config, evenings);
    Ok(())
}

pub(crate) fn apply(scenario: &mut Scenario, config: &Config, evenings: Evenings) {
    scenario.starts_at_night = evenings.starts_closed;
    scenario.evenings = evenings.cleanups;
    scenario.mornings = evenings.reopenings;
    scenario.cleanups_spare_busy = config.evening.mode == EveningMode::Idle;
}

//! `--virtual NAME=MODEL,MODEL`: the loads that a virtual model would have saved on a workload, if all requests for its members had
//! named it.

use std::fmt::Write;

use super::setup::Setup;
use super::table::short;
use pool::ModelId;
use sim::replay::{Options, Report, run};

/// A virtual model with `any_of`.
struct AnyOf<'a> {
    name: &'a str,
    members: Vec<ModelId>,
}

/// Replays the workload with each virtual model, and compares it with `without`.
///
/// # Errors
/// A definition that cannot be read, an unknown model, or a workload that can no longer be read.
pub fn compare(setup: &Setup, definitions: &[String], without: &Report) -> Result<String, String> {
    let mut out = String::new();
    for definition in definitions {
        let any_of = parse(setup, definition)?;
        let options = Options {
            any_of: vec![any_of.members.clone()],
            ..Options::default()
        };
        let arrivals = setup.arrivals().map_err(|fault| fault.to_string())?;
        let with = run(&setup.scenario, arrivals, &options, &mut |_, _| {});
        if let Some(broken) = with.broken.first() {
            return Err(format!("a rule was broken: {broken}"));
        }
        let saved = i128::from(without.all.loads) - i128::from(with.all.loads);
        let _ = writeln!(
            out,
            "{} = any_of {} models: {} loads instead of {} ({saved} saved), mean wait {} instead of {}, {} requests served instead of {}",
            any_of.name,
            any_of.members.len(),
            with.all.loads,
            without.all.loads,
            short(with.all.waits.mean),
            short(without.all.waits.mean),
            with.all.served,
            without.all.served,
        );
    }
    Ok(out)
}

fn parse<'a>(setup: &Setup, definition: &'a str) -> Result<AnyOf<'a>, String> {
    let wrong = |problem: &str| {
        format!(
            "--virtual `{definition}` {problem}; write a name and its models, such as coder=org/a,org/b"
        )
    };
    let (name, list) = definition
        .split_once('=')
        .ok_or_else(|| wrong("has no `=`"))?;
    let mut members = Vec::new();
    for model in list.split(',').filter(|model| !model.is_empty()) {
        let mut known = setup.scenario.models.iter();
        let nth = known.position(|spec| spec.name == model);
        let nth = nth.and_then(|nth| u32::try_from(nth).ok());
        let nth =
            nth.ok_or_else(|| wrong(&format!("names {model}, which is no model of the replay")))?;
        if !members.contains(&ModelId(nth)) {
            members.push(ModelId(nth));
        }
    }
    if name.is_empty() || members.is_empty() {
        return Err(wrong("has no name or no models"));
    }
    Ok(AnyOf { name, members })
}

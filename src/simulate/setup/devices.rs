//! The devices of a replay: the pool's, changed by the what-if flags, or an assumption that is printed.

use std::collections::BTreeSet;

use crate::args::SimulateArgs;
use crate::environment::FindDevices;
use crate::models;
use config::{Config, Provider};
use pool::{Bytes, DeviceId, DeviceReading, ModelSpec, NodeId};
use store::PoolHistory;

type Devices = Vec<(DeviceId, DeviceReading)>;

/// Devices of an assumed size hold this share of all models, in thousandths.
const ASSUMED_SHARE: u64 = 350;
const COUNT_MAX: u32 = 65_536;

/// The devices of a pool, and a notice about their origin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    devices: Devices,
    has_gpus: bool,
    notice: Option<String>,
}

/// The devices of a replay.
pub(super) struct PlayedDevices {
    pub all: Devices,
    /// Host memory is separate from the devices, so a sleeping engine can keep its weights there.
    pub have_own_memory: bool,
    /// The number of nodes on the machine of the configuration.
    pub nodes_here: usize,
}

/// The devices of the replayed pool, or the reason why they are unknown.
pub(super) fn of_pool(
    args: &SimulateArgs,
    config: &Config,
    past: Option<&PoolHistory>,
    find: FindDevices<'_>,
) -> Result<Found, String> {
    if args.pool.is_none() {
        return Err("--pool is not set".to_owned());
    }
    let machine = find(config)?;
    let found = machine.readings;
    let is_written = config.inventory.provider == Provider::Fixed;
    let had = past.map(PoolHistory::devices).unwrap_or_default();
    let is_here = |name: &str| found.iter().any(|device| device.name == name);
    let missing: Vec<&str> = had.into_iter().filter(|name| !is_here(name)).collect();
    // The store may belong to another machine's pool: names such as `gpu0` and `host` exist on every machine.
    let other = (!missing.is_empty()).then(|| {
        let place = if is_written {
            "the configuration"
        } else {
            "this machine"
        };
        let missing = missing.join(", ");
        format!(
            "the pool of this store had {missing}, and {place} has {}",
            listed(&found)
        )
    });
    let notice = match (is_written, other) {
        (true, other) => other,
        (false, Some(other)) => return Err(other),
        (false, None) => Some(format!(
            "using the devices of this machine: {}",
            listed(&found)
        )),
    };
    let numbered = found.into_iter().zip(0..);
    let devices = numbered.map(|(device, nth)| (DeviceId(nth), device));
    Ok(Found {
        devices: devices.collect(),
        has_gpus: is_written || machine.has_gpus,
        notice,
    })
}

fn listed(devices: &[DeviceReading]) -> String {
    let each = devices
        .iter()
        .map(|device| format!("{} of {}", device.name, device.total));
    each.collect::<Vec<String>>().join(", ")
}

/// Applies `--gpus` and `--capacity`. Looks for the pool's own devices only if they matter.
pub(super) fn devices(
    specs: &[ModelSpec],
    args: &SimulateArgs,
    find: impl FnOnce() -> Result<Found, String>,
    notices: &mut Vec<String>,
) -> Result<PlayedDevices, String> {
    let (count, size) = match &args.gpus {
        Some(text) => parse_gpus(text)?,
        None => (Count::Unchanged, None),
    };
    let found = match size {
        Some(_) => Ok(Found {
            devices: Vec::new(),
            has_gpus: true,
            notice: None,
        }),
        None => find(),
    };
    if let (Count::More(more), Err(unknown)) = (&count, &found) {
        return Err(format!(
            "--gpus +{more} adds to the devices of the pool, which are not known: {unknown}; write the number and size of all, such as --gpus {}x80GiB",
            more.saturating_add(1)
        ));
    }
    let (known, has_gpus, notice, unknown) = match found {
        Ok(found) => (found.devices, found.has_gpus, found.notice, None),
        Err(unknown) => (Vec::new(), true, None, Some(unknown)),
    };
    let nodes_here: BTreeSet<NodeId> = known.iter().map(|(_, device)| device.node).collect();
    let have_own_memory = has_gpus || args.capacity.is_some();
    let total = match count {
        Count::Unchanged => known.len().max(1),
        Count::Exactly(count) => count as usize,
        Count::More(more) => known.len() + more as usize,
    };
    let count_of_all = u32::try_from(total)
        .ok()
        .filter(|count| (1..=COUNT_MAX).contains(count));
    let count_of_all = count_of_all.ok_or_else(|| {
        let text = args.gpus.as_deref().unwrap_or_default();
        format!("--gpus `{text}`: between 1 and {COUNT_MAX} devices can be simulated")
    })?;
    let devices = match (&args.capacity, size) {
        (Some(text), _) => models::devices_for(specs, count_of_all, permille(text)?),
        (None, Some(size)) => models::devices(count_of_all, size),
        (None, None) if known.is_empty() => {
            let assumed = models::devices_for(specs, count_of_all, ASSUMED_SHARE);
            let why = unknown.unwrap_or_else(|| "there is none".to_owned());
            notices.push(assumption(&assumed, specs, &why));
            assumed
        }
        (None, None) => {
            notices.extend(notice);
            resized(known, count_of_all)
        }
    };
    let names: BTreeSet<&str> = devices
        .iter()
        .map(|(_, reading)| reading.name.as_str())
        .collect();
    if names.len() < devices.len() {
        Err("two devices have the same name".to_owned())
    } else {
        Ok(PlayedDevices {
            all: devices,
            have_own_memory,
            nodes_here: nodes_here.len(),
        })
    }
}

/// The number of devices that `--gpus` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Unchanged,
    Exactly(u32),
    More(u32),
}

/// `+2`, `8`, or `4x80GiB` with the size of each.
fn parse_gpus(text: &str) -> Result<(Count, Option<Bytes>), String> {
    let wrong = || format!("--gpus `{text}` is neither `+2`, nor `8`, nor `4x80GiB`");
    if let Some((count, size)) = text.split_once('x') {
        let count: u32 = count.parse().map_err(|_| wrong())?;
        let size: bytesize::ByteSize = size.parse().map_err(|_| wrong())?;
        return Ok((Count::Exactly(count), Some(Bytes(size.as_u64()))));
    }
    // `parse` would accept another sign, but a sign is part of the syntax here.
    let number = |digits: &str| {
        if digits.starts_with('+') {
            Err(wrong())
        } else {
            digits.parse::<u32>().map_err(|_| wrong())
        }
    };
    Ok(match text.strip_prefix('+') {
        Some(more) => (Count::More(number(more)?), None),
        None => (Count::Exactly(number(text)?), None),
    })
}

/// `35%` in thousandths.
fn permille(text: &str) -> Result<u64, String> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok());
    let share = number.filter(|share| *share > 0.0 && *share <= 1000.0);
    let share =
        share.ok_or_else(|| format!("--capacity `{text}` is not a percentage such as 35%"))?;
    Ok((share * 10.0) as u64)
}

fn assumption(devices: &[(DeviceId, DeviceReading)], specs: &[ModelSpec], why: &str) -> String {
    let each = devices.first().map(|(_, device)| device.total);
    let each = each.unwrap_or_default();
    let all: u64 = specs.iter().map(|spec| spec.bytes_per_device.0).sum();
    let each = match devices.len() {
        1 => format!("one device of {each}"),
        count => format!("{count} devices of {each} each"),
    };
    format!(
        "the devices are not known: {why}; assuming {each}, for {} of all models together; set --gpus 4x80GiB, --capacity, or `inventory` in --pool",
        Bytes(all)
    )
}

/// The first `count` devices, extended with copies of the last one.
fn resized(known: Devices, count: u32) -> Devices {
    let mut devices = known;
    devices.truncate(count as usize);
    let Some((_, last)) = devices.last().cloned() else {
        return devices;
    };
    let mut names: BTreeSet<String> = devices
        .iter()
        .map(|(_, reading)| reading.name.clone())
        .collect();
    for (id, like) in models::devices(count, last.total)
        .into_iter()
        .skip(devices.len())
    {
        // GPUs of the configuration may already have such names.
        let free = (id.0..).map(|nth| format!("gpu{nth}"));
        let name = free.into_iter().find(|name| !names.contains(name));
        let name = name.unwrap_or(like.name);
        names.insert(name.clone());
        devices.push((
            id,
            DeviceReading {
                name,
                node: like.node,
                ..last.clone()
            },
        ));
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::MachineDevices;
    use clap::Parser;
    use store::ModelPast;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        simulate: SimulateArgs,
    }

    fn found_host(_: &Config) -> Result<MachineDevices, String> {
        Ok(MachineDevices {
            readings: vec![device("host")],
            has_gpus: false,
        })
    }

    /// The devices of a pool whose models were on devices with these names.
    fn of_store(config: &Config, had: &[&str]) -> Result<Found, String> {
        let words = ["p", "--workload", "past.db", "--pool", "pool.yaml"];
        let args = Program::try_parse_from(words).expect("parses").simulate;
        let mut past = PoolHistory::default();
        let model = ModelPast {
            devices: had.iter().map(|name| (*name).to_owned()).collect(),
            ..ModelPast::default()
        };
        past.models.insert("a".to_owned(), model);
        of_pool(&args, config, Some(&past), &found_host)
    }

    #[test]
    fn devices_of_this_machine_are_not_substituted_for_those_of_another_machines_store() {
        let of = |had: &[&str]| of_store(&Config::default(), had);
        let found = of(&["host"]).expect("this machine's");
        assert_eq!(found.devices, one("host"));
        let notice = found.notice.expect("where they come from");
        assert_eq!(notice, "using the devices of this machine: host of 64 B");
        // Every machine has a host.
        for had in [&["gpu7"][..], &["gpu7", "host"]] {
            let unknown = of(had).expect_err("another machine's");
            assert_eq!(
                unknown,
                "the pool of this store had gpu7, and this machine has host of 64 B"
            );
        }
    }

    #[test]
    fn configured_devices_are_used_instead_of_the_stores() {
        let mut config = Config::default();
        config.inventory.provider = Provider::Fixed;
        let found = of_store(&config, &["host"]).expect("written down");
        assert_eq!((found.devices, found.notice), (one("host"), None));
        let other = of_store(&config, &["gpu7"]).expect("written down");
        assert_eq!(other.devices, one("host"));
        let notice = other.notice.unwrap_or_default();
        assert_eq!(
            notice,
            "the pool of this store had gpu7, and the configuration has host of 64 B"
        );
    }

    fn device(name: &str) -> DeviceReading {
        DeviceReading {
            name: name.to_owned(),
            total: Bytes(64),
            headroom: Bytes(3),
            ..DeviceReading::default()
        }
    }

    fn one(name: &str) -> Devices {
        vec![(DeviceId(0), device(name))]
    }

    #[test]
    fn additional_devices_copy_the_last_one_under_unused_names() {
        let three = resized(one("gpu1"), 3);
        let names: Vec<&str> = three
            .iter()
            .map(|(_, reading)| reading.name.as_str())
            .collect();
        assert_eq!(names, ["gpu1", "gpu2", "gpu3"]);
        let alike =
            |reading: &DeviceReading| reading.total == Bytes(64) && reading.headroom == Bytes(3);
        assert!(three.iter().all(|(_, reading)| alike(reading)), "{three:?}");
        assert_eq!(resized(three, 1), one("gpu1"));
    }

    #[test]
    fn gpus_accepts_a_count_an_increment_or_a_count_with_a_size() {
        assert_eq!(parse_gpus("+2"), Ok((Count::More(2), None)));
        assert_eq!(parse_gpus("8"), Ok((Count::Exactly(8), None)));
        let sized = (Count::Exactly(4), Some(Bytes(80 << 30)));
        assert_eq!(parse_gpus("4x80GiB"), Ok(sized));
        for wrong in ["many", "-3", "4x", "x80GiB", "++2"] {
            assert!(parse_gpus(wrong).is_err(), "{wrong}");
        }
    }
}

//! Checks that involve several values: ranges, values that this version does not support, and contradictory keys. Reports all
//! problems, not only the first.

use std::collections::BTreeSet;

use pool::{Bytes, Priority, Span};

use super::batch_nodes;
use super::root::Config;
use crate::cluster::section as cluster;
use crate::problems::Problem;
use crate::sections::{
    InventorySection, OnUnknown, PoolSection, Provider, groups, oidc, responses, server, standby,
    usage, virtual_models,
};
use crate::values::{CronExpression, DeviceKind, IdleProbe, Length, MaxTurn, TimeZone};

/// Maximum for the number of requests waiting for one model.
pub const QUEUE_LIMIT_MAX: u32 = 1_000_000;
const BODY_LIMIT: (Bytes, Bytes) = (Bytes(1 << 10), Bytes(Bytes::GIB));
/// A longer target would never change anything.
const TARGET_MAX: Length = Length::from_secs(86_400);
const ADOPT_WITHIN: (Span, Span) = (Span::from_secs(1), Span::from_secs(86_400));
const KEEP_ALIVE_COMMENT: (Span, Span) = (Span(100), Span::from_secs(600));
/// More frequent probes would cost more than they are worth.
const HEARTBEAT_MIN: Span = Span(50);
/// Engines pause between tokens, so a shorter time is not a stall.
pub const STALL_MIN: Span = Span(100);
/// A smaller device holds no model.
const DEVICE_MEMORY_MIN: Bytes = Bytes(Bytes::MIB);

/// A larger number of simultaneous fetches is a mistake.
const FETCHES_MAX: u32 = 64;
const UNKNOWN_MAX: u32 = 10_000;
const HISTORY_KEEP_MIN: Length = Length::from_secs(60);
const HISTORY_ROWS: (u64, u64) = (100, 100_000_000);

/// All problems with this configuration; empty if it can be used.
pub(crate) fn problems(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, key: &str, message: String| {
        if !holds {
            problems.push(Problem::new(key, message));
        }
    };

    let body_limit = config.server.body_limit;
    unless(
        (BODY_LIMIT.0..=BODY_LIMIT.1).contains(&body_limit.0),
        "server.body_limit",
        format!("is {body_limit}; allowed: 1KiB to 1GiB"),
    );
    let comment = config.server.keep_alive_comment;
    unless(
        (KEEP_ALIVE_COMMENT.0..=KEEP_ALIVE_COMMENT.1).contains(&comment.0),
        "server.keep_alive_comment",
        format!("is {comment}; allowed: 100ms to 10m"),
    );
    unless(
        !config.state.dir.as_os_str().is_empty(),
        "state.dir",
        "is empty; name a folder, or `.` for the current one".to_owned(),
    );
    let history = &config.state.history;
    unless(
        history.keep >= HISTORY_KEEP_MIN,
        "state.history.keep",
        format!("is {}; allowed: 1m to 10 years", history.keep),
    );
    unless(
        (HISTORY_ROWS.0..=HISTORY_ROWS.1).contains(&history.rows_max),
        "state.history.rows_max",
        format!(
            "is {}; allowed: {} to {}",
            history.rows_max, HISTORY_ROWS.0, HISTORY_ROWS.1
        ),
    );
    let sources = &config.sources;
    for (key, count) in [
        ("sources.files_at_once", sources.files_at_once),
        ("sources.models_at_once", sources.models_at_once),
    ] {
        unless(
            (1..=FETCHES_MAX).contains(&count),
            key,
            format!("is {count}; allowed: 1 to {FETCHES_MAX}"),
        );
    }
    for (key, count) in [
        ("catalog.unknown_limit", config.catalog.unknown_limit),
        ("catalog.unknown_per_hour", config.catalog.unknown_per_hour),
    ] {
        unless(
            (1..=UNKNOWN_MAX).contains(&count),
            key,
            format!("is {count}; allowed: 1 to {UNKNOWN_MAX}"),
        );
    }
    let is_address = ["http://", "https://"]
        .iter()
        .any(|scheme| sources.hub.starts_with(scheme) && sources.hub.len() > scheme.len());
    unless(
        is_address && !sources.hub.contains(char::is_whitespace) && !sources.hub.contains('@'),
        "sources.hub",
        "is not a URL such as https://huggingface.co; use HF_ENDPOINT for a URL with a password"
            .to_owned(),
    );
    problems.extend(pool_problems(&config.pool));
    problems.extend(evening_problems(config));
    problems.extend(config.limits.problems());
    problems.extend(groups::problems(&config.groups));
    problems.extend(virtual_models::problems(&config.virtual_models));
    problems.extend(responses::problems(&config.state.responses));
    problems.extend(config.batch.problems());
    problems.extend(batch_nodes::problems(config));
    problems.extend(usage::problems(&config.usage));
    if let Some(section) = &config.state.standby {
        problems.extend(standby::problems(section, &config.database_url()));
    }
    problems.extend(server::problems(&config.server));
    problems.extend(inventory_problems(&config.inventory));
    problems.extend(cluster::problems(&config.cluster));
    problems.extend(config.compat.problem());
    problems.extend(config.telemetry.problems());
    problems.extend(config.auth.oidc.iter().flat_map(oidc::problems));
    problems
}

fn pool_problems(pool: &PoolSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, key: &str, message: String| {
        if !holds {
            problems.push(Problem::new(format!("pool.{key}"), message));
        }
    };
    let limit = pool.queue_limit;
    unless(
        (1..=QUEUE_LIMIT_MAX).contains(&limit),
        "queue_limit",
        format!("is {limit}; allowed: 1 to {QUEUE_LIMIT_MAX}"),
    );
    let (least, most) = (pool.keep_hot_least, pool.keep_hot_most);
    unless(
        least.0 <= most.0,
        "keep_hot_least",
        format!("is {least}, more than pool.keep_hot_most, which is {most}; it must not be larger"),
    );
    unless(
        most.0 > Span::ZERO,
        "keep_hot_most",
        format!("is {most}; allowed: 1ms and more, such as 24h"),
    );
    unless(
        !matches!(pool.max_turn, MaxTurn::After(turn) if turn.0 == Span::ZERO),
        "max_turn",
        format!(
            "is {}, so models of equal priority would only swap; write a time such as 30s, or auto",
            pool.max_turn
        ),
    );
    for (name, target) in &pool.targets {
        let key = format!("targets.{name}");
        unless(
            PoolSection::priority_of_target(name).is_some(),
            &key,
            format!(
                "is not a priority; allowed: 0 to {}, as in {{0: 30s, 1: 10s}}",
                Priority::MAX
            ),
        );
        unless(
            target.0 > Span::ZERO && *target <= TARGET_MAX,
            &key,
            format!("is {target}; allowed: 1ms to 1day"),
        );
    }
    let timeout = pool.queue_timeout;
    unless(
        timeout.0 > Span::ZERO,
        "queue_timeout",
        format!("is {timeout}; allowed: 1ms and more, such as 5m"),
    );
    let (heartbeat, response) = (pool.heartbeat, pool.heartbeat_timeout);
    unless(
        heartbeat.0 >= HEARTBEAT_MIN,
        "heartbeat",
        format!("is {heartbeat}; allowed: 50ms and more"),
    );
    unless(
        response.0 > Span::ZERO && response.0 <= heartbeat.0,
        "heartbeat_timeout",
        format!("is {response}; allowed: 1ms to pool.heartbeat, which is {heartbeat}"),
    );
    let misses = pool.heartbeat_misses;
    unless(
        (1..=100).contains(&misses),
        "heartbeat_misses",
        format!("is {misses}; allowed: 1 to 100"),
    );
    let (stall, first) = (pool.stall_after, pool.first_token_after);
    unless(
        stall.0 >= STALL_MIN,
        "stall_after",
        format!("is {stall}; allowed: 100ms and more"),
    );
    unless(
        stall.0 <= first.0,
        "stall_after",
        format!(
            "is {stall}, more than pool.first_token_after, which is {first}; it must not be larger"
        ),
    );
    let probe = pool.idle_probe;
    unless(
        !matches!(probe, IdleProbe::After(after) if after.0 < HEARTBEAT_MIN),
        "idle_probe",
        format!("is {probe}; allowed: 50ms and more, or off"),
    );
    let within = pool.adopt_within;
    unless(
        (ADOPT_WITHIN.0..=ADOPT_WITHIN.1).contains(&within.0),
        "adopt_within",
        format!("is {within}; allowed: 1s to 1d"),
    );
    problems
}

/// Checks the times of the evening, and the retention of sleeping engines.
fn evening_problems(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let evening = &config.evening;
    if let (Some(cleanup), Some(reopen)) = (&evening.cleanup, &evening.reopen)
        && cleanup.is_the_same_as(reopen)
    {
        let seven = CronExpression::daily(7);
        let later = if reopen.is_the_same_as(&seven) {
            CronExpression::daily(9)
        } else {
            seven
        };
        let message = format!(
            "is `{reopen}`, the same times as evening.cleanup, so the pool would reopen immediately; write another time such as \"{later}\""
        );
        problems.push(Problem::new("evening.reopen", message));
    }
    let keep = config.parking.keep;
    if keep.0 == Span::ZERO {
        let message = format!(
            "is {keep}; allowed: 1ms and more, such as 1h. To switch sleep off, set parking.host_memory to 0%"
        );
        problems.push(Problem::new("parking.keep", message));
    }
    problems.extend(config.node.problems());
    problems
}

fn inventory_problems(inventory: &InventorySection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |key: &str, message: String| {
        problems.push(Problem::new(format!("inventory.{key}"), message));
    };
    if inventory.host_memory.0 < DEVICE_MEMORY_MIN {
        let message = format!("is {}; allowed: 1MiB and more", inventory.host_memory);
        wrong("host_memory", message);
    }
    match (inventory.provider, inventory.devices.len()) {
        (Provider::Fixed, 0) => wrong(
            "devices",
            "is empty, and inventory.provider is fixed; list devices as {name: gpu0, memory: 24GiB}".to_owned(),
        ),
        (Provider::Auto | Provider::Host, count @ 1..) => wrong("devices", format!(
            "lists {count} devices, which inventory.provider {} does not use; set it to fixed, nvml, amd, intel or command, or remove the list",
            inventory.provider.name()
        )),
        _ => {}
    }
    if inventory.provider == Provider::Command && inventory.command.is_empty() {
        wrong(
            "command",
            "is empty, and inventory.provider is command; write the program that prints the devices, and its arguments, as a list".to_owned(),
        );
    }
    let mut names = BTreeSet::new();
    for (index, device) in inventory.devices.iter().enumerate() {
        let mut wrong =
            |key: &str, message: String| wrong(&format!("devices[{index}]{key}"), message);
        if device.name.trim().is_empty() || device.name.len() > 100 {
            let message = format!("is `{}`; allowed: 1 to 100 bytes", device.name);
            wrong(".name", message);
        }
        if !names.insert(device.name.as_str()) {
            wrong(
                ".name",
                format!(
                    "`{}` is given twice; each device needs a unique name",
                    device.name
                ),
            );
        }
        let by_driver = device.uuid.is_some() || device.index.is_some();
        if by_driver && inventory.provider == Provider::Fixed {
            let message =
                "has a uuid or an index, which inventory.provider fixed does not use; remove it";
            wrong("", message.to_owned());
        }
        if inventory.provider.measures_devices() {
            let provider = inventory.provider.name();
            if device.product.is_some() {
                wrong(
                    ".type",
                    format!(
                        "is set, but inventory.provider {provider} detects the devices; remove it"
                    ),
                );
            }
            if device.accelerator.is_some() {
                wrong(
                    ".accelerator",
                    format!(
                        "is set, but inventory.provider {provider} detects the devices; remove it"
                    ),
                );
            }
            if device.node != 0 {
                let message = format!(
                    "is {}; all devices of inventory.provider {provider} are on one machine",
                    device.node
                );
                wrong(".node", message);
            }
        }
        if device.accelerator == Some(DeviceKind::Host) {
            wrong(
                ".accelerator",
                "is host; a list holds GPUs, and inventory.provider host is the memory of the machine".to_owned(),
            );
        }
        if device.memory.0 < DEVICE_MEMORY_MIN {
            wrong(
                ".memory",
                format!("is {}; allowed: 1MiB and more", device.memory),
            );
        }
    }
    problems
}

/// Settings that work but have less effect than expected.
pub(crate) fn notices(config: &Config) -> Vec<String> {
    let mut notices: Vec<String> = config.compat.notice().into_iter().collect();
    notices.extend(cluster::notices(&config.cluster));
    if config.auth.oidc.is_none() {
        notices.extend(groups::notice(&config.groups));
    }
    let inventory = &config.inventory;
    if inventory.provider != Provider::Command && !inventory.command.is_empty() {
        notices.push(format!(
            "inventory.command has no effect with inventory.provider {}",
            inventory.provider.name()
        ));
    }
    let is_found = matches!(inventory.provider, Provider::Auto | Provider::Host);
    if !is_found && inventory.host_memory != InventorySection::default().host_memory {
        notices.push(format!(
            "inventory.host_memory has no effect with inventory.provider {}",
            inventory.provider.name()
        ));
    }
    let catalog = &config.catalog;
    if catalog.unknown_private {
        notices.push(if catalog.on_unknown == OnUnknown::Anyone {
            "catalog.unknown_private: every user can load all repositories that the pool's HF_TOKEN can read, including private and gated ones".to_owned()
        } else {
            "catalog.unknown_private has no effect while catalog.on_unknown is not anyone".to_owned()
        });
    }
    let local = (config.evening.timezone == TimeZone::Local).then_some(&config.local_zone);
    if let Some(why) = local.and_then(|local| local.unknown.as_ref()) {
        notices.push(format!(
            "the time zone of this machine cannot be used: {why}; evening.timezone is UTC until you set it to a name like Europe/Berlin"
        ));
    }
    if config.evening.cleanup.is_some() && config.evening.reopen.is_none() {
        notices.push(
            "evening.reopen is off: the pool reopens as soon as a cleanup has ended, and always-hot models come back immediately".to_owned(),
        );
    }
    notices
}

//! Checks that need more than one value: ranges, values that this version does not support, and contradictory
//! keys. All problems are reported, not only the first.

use std::collections::BTreeSet;

use pool::{Bytes, Span};

use super::oidc;
use super::sections::{AutoscalerKind, AutoscalerSection, Provider};
use super::{Config, IdleProbe, InventorySection, Length, server};

/// Requests that may wait for one model.
pub const QUEUE_LIMIT_MAX: u32 = 1_000_000;
const BODY_LIMIT: (Bytes, Bytes) = (Bytes(1 << 10), Bytes(Bytes::GIB));
const ADOPT_WITHIN: (Span, Span) = (Span::from_secs(1), Span::from_secs(86_400));
const KEEP_ALIVE_COMMENT: (Span, Span) = (Span(100), Span::from_secs(600));
/// More frequent probes would cost more than they are worth.
const HEARTBEAT_MIN: Span = Span(50);
/// Engines pause between tokens, so a shorter time is not a stall.
pub const STALL_MIN: Span = Span(100);
/// Less than this holds no model.
const DEVICE_MEMORY_MIN: Bytes = Bytes(Bytes::MIB);

/// More at once is a mistake.
const FETCHES_MAX: u32 = 64;
const UNKNOWN_MAX: u32 = 10_000;
const HISTORY_KEEP_MIN: Length = Length::from_secs(60);
const HISTORY_ROWS: (u64, u64) = (100, 100_000_000);

/// All problems with this configuration; empty if it can be used.
pub(super) fn problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, problem: String| {
        if !holds {
            problems.push(problem);
        }
    };

    let body_limit = config.server.body_limit;
    unless(
        (BODY_LIMIT.0..=BODY_LIMIT.1).contains(&body_limit.0),
        format!("server.body_limit is {body_limit}; allowed: 1KiB to 1GiB"),
    );
    let comment = config.server.keep_alive_comment;
    unless(
        (KEEP_ALIVE_COMMENT.0..=KEEP_ALIVE_COMMENT.1).contains(&comment.0),
        format!("server.keep_alive_comment is {comment}; allowed: 100ms to 10m"),
    );
    unless(
        !config.state.dir.as_os_str().is_empty(),
        "state.dir is empty; name a folder, or `.` for the current one".to_owned(),
    );
    let history = &config.state.history;
    unless(
        history.keep >= HISTORY_KEEP_MIN,
        format!(
            "state.history.keep is {}; allowed: 1m to 10 years",
            history.keep
        ),
    );
    unless(
        (HISTORY_ROWS.0..=HISTORY_ROWS.1).contains(&history.rows_max),
        format!(
            "state.history.rows_max is {}; allowed: {} to {}",
            history.rows_max, HISTORY_ROWS.0, HISTORY_ROWS.1
        ),
    );
    let sources = &config.sources;
    for (key, count) in [
        ("files_at_once", sources.files_at_once),
        ("models_at_once", sources.models_at_once),
    ] {
        unless(
            (1..=FETCHES_MAX).contains(&count),
            format!("sources.{key} is {count}; allowed: 1 to {FETCHES_MAX}"),
        );
    }
    for (key, count) in [
        ("unknown_limit", config.catalog.unknown_limit),
        ("unknown_per_hour", config.catalog.unknown_per_hour),
    ] {
        unless(
            (1..=UNKNOWN_MAX).contains(&count),
            format!("catalog.{key} is {count}; allowed: 1 to {UNKNOWN_MAX}"),
        );
    }
    let is_address = ["http://", "https://"]
        .iter()
        .any(|scheme| sources.hub.starts_with(scheme) && sources.hub.len() > scheme.len());
    unless(
        is_address && !sources.hub.contains(char::is_whitespace) && !sources.hub.contains('@'),
        "sources.hub is not a URL such as https://huggingface.co; one with a password goes into HF_ENDPOINT".to_owned(),
    );
    let limit = config.pool.queue_limit;
    unless(
        (1..=QUEUE_LIMIT_MAX).contains(&limit),
        format!("pool.queue_limit is {limit}; allowed: 1 to {QUEUE_LIMIT_MAX}"),
    );
    let (least, most) = (config.pool.keep_hot_least, config.pool.keep_hot_most);
    unless(
        least.0 <= most.0,
        format!(
            "pool.keep_hot_least is {least} and pool.keep_hot_most {most}; the first may not be larger"
        ),
    );
    let timeout = config.pool.queue_timeout;
    unless(
        timeout.0 > Span::ZERO,
        format!("pool.queue_timeout is {timeout}; allowed: 1ms and more"),
    );
    let (heartbeat, answer) = (config.pool.heartbeat, config.pool.heartbeat_timeout);
    unless(
        heartbeat.0 >= HEARTBEAT_MIN,
        format!("pool.heartbeat is {heartbeat}; allowed: 50ms and more"),
    );
    unless(
        answer.0 > Span::ZERO && answer.0 <= heartbeat.0,
        format!(
            "pool.heartbeat_timeout is {answer}; allowed: 1ms to pool.heartbeat, which is {heartbeat}"
        ),
    );
    let misses = config.pool.heartbeat_misses;
    unless(
        (1..=100).contains(&misses),
        format!("pool.heartbeat_misses is {misses}; allowed: 1 to 100"),
    );
    let (stall, first) = (config.pool.stall_after, config.pool.first_token_after);
    unless(
        stall.0 >= STALL_MIN,
        format!("pool.stall_after is {stall}; allowed: 100ms and more"),
    );
    unless(
        stall.0 <= first.0,
        format!(
            "pool.stall_after is {stall} and pool.first_token_after {first}; the first may not be larger"
        ),
    );
    let probe = config.pool.idle_probe;
    unless(
        !matches!(probe, IdleProbe::After(after) if after.0 < HEARTBEAT_MIN),
        format!("pool.idle_probe is {probe}; allowed: 50ms and more, or off"),
    );
    let within = config.pool.adopt_within;
    unless(
        (ADOPT_WITHIN.0..=ADOPT_WITHIN.1).contains(&within.0),
        format!("pool.adopt_within is {within}; allowed: 1s to 1d"),
    );
    unless(
        config.autoscaler.kind == AutoscalerKind::None,
        "autoscaler.kind is ray or slurm, not supported yet; write none".to_owned(),
    );
    problems.extend(config.limits.problems());
    problems.extend(server::problems(&config.server));
    problems.extend(inventory_problems(&config.inventory));
    problems.extend(config.compat.problem());
    problems.extend(config.auth.oidc.iter().flat_map(oidc::problems));
    problems
}

fn inventory_problems(inventory: &InventorySection) -> Vec<String> {
    let mut problems = Vec::new();
    if inventory.host_memory.0 < DEVICE_MEMORY_MIN {
        problems.push(format!(
            "inventory.host_memory is {}; allowed: 1MiB and more",
            inventory.host_memory
        ));
    }
    match (inventory.provider, inventory.devices.len()) {
        (Provider::Fixed, 0) => problems.push(
            "inventory.devices is empty, and inventory.provider is fixed; list devices as {name: gpu0, memory: 24GiB}".to_owned(),
        ),
        (Provider::Fixed | Provider::Nvml, _) | (_, 0) => {}
        (_, count) => problems.push(format!(
            "inventory.devices lists {count} devices, which only inventory.provider fixed or nvml uses; set one of them, or remove the list"
        )),
    }
    let mut names = BTreeSet::new();
    for (index, device) in inventory.devices.iter().enumerate() {
        let key = format!("inventory.devices[{index}]");
        if device.name.trim().is_empty() || device.name.len() > 100 {
            problems.push(format!(
                "{key}.name is `{}`; allowed: 1 to 100 bytes",
                device.name
            ));
        }
        if !names.insert(device.name.as_str()) {
            problems.push(format!("{key}.name `{}` is given twice", device.name));
        }
        let by_driver = device.uuid.is_some() || device.index.is_some();
        if by_driver && inventory.provider == Provider::Fixed {
            problems.push(format!(
                "{key} has a uuid or an index, which only inventory.provider nvml supports"
            ));
        }
        if device.node != 0 && inventory.provider == Provider::Nvml {
            problems.push(format!(
                "{key}.node is {}; all GPUs of inventory.provider nvml are on one machine",
                device.node
            ));
        }
        if device.memory.0 < DEVICE_MEMORY_MIN {
            problems.push(format!(
                "{key}.memory is {}; allowed: 1MiB and more",
                device.memory
            ));
        }
    }
    problems
}

/// Settings that work but have less effect than expected.
pub(super) fn notices(config: &Config) -> Vec<String> {
    let mut notices: Vec<String> = config.compat.notice().into_iter().collect();
    if config.autoscaler.patience != AutoscalerSection::default().patience {
        notices.push("autoscaler.patience has no effect while autoscaler.kind is none".to_owned());
    }
    let inventory = &config.inventory;
    if matches!(inventory.provider, Provider::Nvml | Provider::Fixed)
        && inventory.host_memory != InventorySection::default().host_memory
    {
        notices.push(
            "inventory.host_memory has no effect with inventory.provider nvml or fixed".to_owned(),
        );
    }
    if config.evening.cleanup.is_some() && config.evening.reopen.is_none() {
        notices.push(
            "evening.reopen is off: after a cleanup always-hot models stay unprotected until a restart (E2)".to_owned(),
        );
    }
    notices
}

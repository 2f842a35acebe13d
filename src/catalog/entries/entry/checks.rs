//! Checks individual keys of a document and gives the reasons for refusing them.

use std::collections::BTreeSet;

use config::Length;
use pool::Span;

use crate::documents::{
    CatalogError, Diagnostics, ModelDocument, PoolConfig, SEATS_MAX, ScalingConfig, Sleep, limits,
};
use crate::engines::{ENGINES, Parking};
use crate::recipes::{CANDLE, Recipe};

pub(super) fn check_aliases(
    name: &str,
    aliases: &[String],
    notes: &Diagnostics,
) -> Result<(), CatalogError> {
    let mut seen = BTreeSet::from([name]);
    for (index, alias) in aliases.iter().enumerate() {
        let field = format!("pool_config.aliases[{index}]");
        if let Some(problem) = limits::model_id_problem(alias) {
            let problem = format!("`{}`: {problem}", limits::shown(alias));
            return Err(notes.refuse(&field, problem));
        }
        if !seen.insert(alias) {
            return Err(notes.refuse(
                &field,
                format!("`{alias}` is the model's own name or an alias given twice; remove it"),
            ));
        }
    }
    Ok(())
}

pub(super) fn positive(
    field: &str,
    length: Option<Length>,
    notes: &Diagnostics,
) -> Result<Option<Span>, CatalogError> {
    match length {
        Some(length) if length.0 == Span::ZERO => {
            Err(notes.refuse(field, "0s is not allowed; allowed: 1ms and more"))
        }
        other => Ok(other.map(|length| length.0)),
    }
}

/// Devices per replica, if the document sets them (M5).
pub(super) fn devices(
    pool: &PoolConfig,
    scaling: &ScalingConfig,
    notes: &mut Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let own = pool
        .gpus_per_replica
        .map(|value| notes.check("pool_config.gpus_per_replica", value, limits::device_count))
        .transpose()?;
    let workers = scaling
        .num_workers
        .map(|value| notes.check("scaling_config.num_workers", value, limits::device_count))
        .transpose()?;
    let per_worker = scaling
        .num_gpus_per_worker
        .map(|value| {
            notes.check("scaling_config.num_gpus_per_worker", value, |value| {
                let devices = if value.fract() == 0.0 {
                    value as i64
                } else {
                    0
                };
                limits::device_count(devices)
                    .map_err(|allowed| format!("{allowed}, whole GPUs only"))
            })
        })
        .transpose()?;
    let rayllm = match (workers, per_worker) {
        (None, None) => None,
        (workers, per_worker) => {
            let product = i64::from(workers.unwrap_or(1)) * i64::from(per_worker.unwrap_or(1));
            let field = "scaling_config.num_workers × num_gpus_per_worker";
            Some(notes.check(field, product, limits::device_count)?)
        }
    };
    if let (Some(own), Some(other)) = (own, rayllm)
        && own != other
    {
        notes.warn(
            "scaling_config.num_workers",
            format!("has no effect: pool_config.gpus_per_replica says {own} GPUs, scaling_config says {other}"),
        );
    }
    Ok(own.or(rayllm))
}

/// Simultaneous requests per replica, if the document sets them.
pub(super) fn configured_seats(
    document: &ModelDocument,
    notes: &Diagnostics,
) -> Result<Option<u32>, CatalogError> {
    let deployment = &document.deployment_config;
    let new = deployment.max_ongoing_requests;
    let old = deployment.max_concurrent_queries;
    let (field, seats) = match (new, old) {
        (Some(_), Some(_)) => {
            return Err(notes.refuse(
                "deployment_config.max_concurrent_queries",
                "is the old name of max_ongoing_requests, which is given too; remove it",
            ));
        }
        (None, Some(old)) => ("deployment_config.max_concurrent_queries", Some(old)),
        (new, None) => ("deployment_config.max_ongoing_requests", new),
    };
    seats
        .map(|value| notes.check(field, value, |value| limits::count(value, SEATS_MAX)))
        .transpose()
}

/// Names the engines that support this sleep mode, for the error when this engine does not.
pub(super) fn no_sleep(sleep: Sleep, recipe: &Recipe) -> String {
    let depths = |parking: &[Parking]| {
        let depths: Vec<&str> = parking.iter().map(|mode| mode.depth.as_str()).collect();
        depths.join(" and ")
    };
    let mut able: Vec<String> = ENGINES
        .into_iter()
        .filter(|engine| !engine.parking.is_empty())
        .map(|engine| format!("{} ({})", engine.name(), depths(engine.parking)))
        .collect();
    able.push(format!(
        "{CANDLE} ({}; on a GPU only models that generate text)",
        Sleep::Weights.as_str()
    ));
    format!(
        "is {}, but the {} engine does not support that sleep mode; these engines do: {}; write off",
        sleep.as_str(),
        recipe.engine(),
        able.join(", ")
    )
}

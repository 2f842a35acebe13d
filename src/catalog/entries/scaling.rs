//! Reads and checks `deployment_config.autoscaling_config`: the number of replicas of a loaded model, with Ray Serve's keys. The
//! pool implements the scaling.

use crate::documents::{AutoscalingConfig, CatalogError, Diagnostics, limits};
use pool::{REPLICAS_MAX, Scaling, Span};

const FIELD: &str = "deployment_config.autoscaling_config";
/// One year.
const SECONDS_MAX: f64 = 31_536_000.0;

/// Reads the section. `None`: one replica, or as many as an administrator requests.
pub(crate) fn read(
    section: Option<&AutoscalingConfig>,
    notes: &mut Diagnostics,
) -> Result<Option<Scaling>, CatalogError> {
    let Some(section) = section else {
        return Ok(None);
    };
    let usual = Scaling::default();
    let count = |key: &str, value: Option<i64>, least: i64| {
        let bounded = |value: i64| match limits::count(value.max(1), REPLICAS_MAX) {
            Ok(count) if value >= least => Ok(if value == 0 { 0 } else { count }),
            _ => Err(format!("allowed: {least} to {REPLICAS_MAX}")),
        };
        let field = format!("{FIELD}.{key}");
        value
            .map(|value| notes.check(&field, value, bounded))
            .transpose()
    };
    let least = count("min_replicas", section.min_replicas, 0)?;
    let initial = count("initial_replicas", section.initial_replicas, 0)?;
    let most = count("max_replicas", section.max_replicas, 1)?;
    let (lower, most) = (least.unwrap_or(1), most.unwrap_or(usual.most));
    let first = initial.unwrap_or(lower);
    if lower > most {
        let problem = format!("is {lower}, and max_replicas is {most}; it must not be larger");
        return Err(notes.refuse(&format!("{FIELD}.min_replicas"), problem));
    }
    if !(lower..=most).contains(&first) {
        let problem =
            format!("is {first}; allowed: from min_replicas ({lower}) to max_replicas ({most})");
        return Err(notes.refuse(&format!("{FIELD}.initial_replicas"), problem));
    }
    let thousandths = |key: &str, value: Option<f64>, usual: u64| match value {
        None => Ok(usual),
        Some(value) if value > 0.0 && value <= 1e6 => Ok((value * 1000.0).round().max(1.0) as u64),
        Some(value) => {
            let problem = format!("{value} is not allowed; allowed: more than 0, to 1000000");
            Err(notes.refuse(&format!("{FIELD}.{key}"), problem))
        }
    };
    let seconds = |key: &str, value: Option<f64>, usual: Span| match value {
        None => Ok(usual),
        Some(value) if (0.0..=SECONDS_MAX).contains(&value) => {
            Ok(Span((value * 1000.0).round() as u64))
        }
        Some(value) => {
            let problem = format!("{value} is not allowed; allowed: 0 to {SECONDS_MAX} seconds");
            Err(notes.refuse(&format!("{FIELD}.{key}"), problem))
        }
    };
    let both = thousandths("smoothing_factor", section.smoothing_factor, 1000)?;
    let up = section
        .upscaling_factor
        .or(section.upscale_smoothing_factor);
    let down = section
        .downscaling_factor
        .or(section.downscale_smoothing_factor);
    let old_target = section.target_num_ongoing_requests_per_replica;
    let target = section.target_ongoing_requests.or(old_target);
    let scaling = Scaling {
        least: lower.max(1),
        initial: first.max(1),
        most,
        target_milli: thousandths("target_ongoing_requests", target, usual.target_milli)?,
        look_back: seconds(
            "look_back_period_s",
            section.look_back_period_s,
            usual.look_back,
        )?,
        up_delay: seconds("upscale_delay_s", section.upscale_delay_s, usual.up_delay)?,
        down_delay: seconds(
            "downscale_delay_s",
            section.downscale_delay_s,
            usual.down_delay,
        )?,
        up_factor_milli: thousandths("upscaling_factor", up, both)?,
        down_factor_milli: thousandths("downscaling_factor", down, both)?,
    };
    // Only checked here; `entry::read` uses it as the model's keep-hot time if no other is set.
    seconds(
        "downscale_to_zero_delay_s",
        section.downscale_to_zero_delay_s,
        Span::ZERO,
    )?;
    if section.metrics_interval_s.is_some() {
        notes.warn(
            &format!("{FIELD}.metrics_interval_s"),
            "has no effect: requests are counted every second",
        );
    }
    Ok(Some(scaling))
}

//! Settings of an entry that do not change how its engine starts: sleep, limits, scaling, and settings of its responses.

use std::collections::BTreeMap;

use config::validate::QUEUE_LIMIT_MAX;
use config::{KeepHot, Length};
use pool::{Bytes, Scaling, Span};

use super::checks::{no_sleep, positive};
use crate::documents::{CatalogError, Diagnostics, ModelDocument, Sleep, limits};
use crate::engines::Parking;
use crate::entries::scaling;
use crate::recipes::{Recipe, ray_serve};
use crate::requests::{Generation, generation};

/// The sleep mode, refused for engines that cannot sleep.
pub(super) fn parking(
    sleep: Sleep,
    recipe: &Recipe,
    has_dynamic_adapters: bool,
    notes: &mut Diagnostics,
) -> Result<Option<&'static Parking>, CatalogError> {
    let parking = recipe.parking();
    if sleep != Sleep::Off && parking.is_none() {
        return Err(notes.refuse("pool_config.sleep", no_sleep(sleep, recipe)));
    }
    if has_dynamic_adapters && sleep != Sleep::Off && !matches!(recipe, Recipe::Candle(_)) {
        return Err(notes.refuse(
            "pool_config.sleep",
            format!(
                "is {}, but the {} engine does not report which adapters it still has after waking; write off, or remove lora_config.dynamic_lora_loading_path",
                sleep.as_str(),
                recipe.engine()
            ),
        ));
    }
    Ok(parking)
}

/// Memory, queue and time limits. `None` uses the pool's settings.
pub(super) struct Limits {
    pub memory: Option<Bytes>,
    pub queue_limit: Option<u32>,
    pub queue_timeout: Option<Span>,
    pub load_deadline: Option<Span>,
    pub stall_after: Option<Span>,
    pub first_token_after: Option<Span>,
}

impl Limits {
    pub fn from_document(
        document: &ModelDocument,
        known_memory: Option<Bytes>,
        notes: &mut Diagnostics,
    ) -> Result<Limits, CatalogError> {
        let pool = &document.pool_config;
        let memory = pool
            .memory_gib
            .map(|value| notes.check("pool_config.memory_gib", value, limits::memory_gib))
            .transpose()?
            .or(known_memory);
        let queue_limit = pool
            .queue_limit
            .map(|value| {
                let bounded = |value| limits::count(value, QUEUE_LIMIT_MAX);
                notes.check("pool_config.queue_limit", value, bounded)
            })
            .transpose()?;
        let above_zero = |key, value| positive(key, value, notes);
        Ok(Limits {
            memory,
            queue_limit,
            queue_timeout: above_zero("pool_config.queue_timeout", pool.queue_timeout)?,
            load_deadline: above_zero("pool_config.load_deadline", pool.load_deadline)?,
            stall_after: above_zero("pool_config.stall_after", pool.stall_after)?,
            first_token_after: above_zero("pool_config.first_token_after", pool.first_token_after)?,
        })
    }
}

/// Limits and targets for scaling by requests.
pub(super) fn scaling(
    document: &ModelDocument,
    recipe: &Recipe,
    notes: &mut Diagnostics,
) -> Result<Option<Scaling>, CatalogError> {
    let section = document.deployment_config.autoscaling_config.as_ref();
    let scaling = scaling::read(section, notes)?;
    Ok(match (recipe, scaling) {
        (Recipe::RayServe(serve), Some(scaling)) => {
            Some(ray_serve::bounded(scaling, serve.replicas_max))
        }
        (_, scaling) => scaling.filter(|_| !recipe.is_remote()),
    })
}

/// The keep-hot time that `downscale_to_zero_delay_s` sets.
pub(super) fn keep_hot_of_scaling(document: &ModelDocument) -> Option<KeepHot> {
    let section = document.deployment_config.autoscaling_config.as_ref()?;
    let seconds = section.downscale_to_zero_delay_s?;
    Some(KeepHot::For(Length(Span((seconds * 1000.0) as u64))))
}

/// Settings added to the model's requests.
pub(super) fn generation(
    document: &ModelDocument,
    recipe: &Recipe,
    notes: &mut Diagnostics,
) -> Result<Generation, CatalogError> {
    let section = document.engine_config.generation.as_ref();
    generation::read(section, document.pool_config.prompt_compat, recipe, notes)
}

/// The same for adapters with separate settings, by the adapter's name.
pub(super) fn adapter_generation(
    document: &ModelDocument,
    recipe: &Recipe,
    of_model: &Generation,
    notes: &mut Diagnostics,
) -> Result<BTreeMap<String, Generation>, CatalogError> {
    let compat = document.pool_config.prompt_compat;
    let mut all = BTreeMap::new();
    for (nth, adapter) in document.engine_config.lora_adapters.iter().enumerate() {
        let section = adapter.generation.as_ref();
        if let Some(section) = section.filter(|section| !section.is_null()) {
            let at = format!("engine_config.lora_adapters[{nth}].generation");
            let own = generation::read_at(&at, section, compat, recipe, notes)?;
            all.insert(adapter.name.clone(), own.over(of_model, section));
        }
    }
    Ok(all)
}

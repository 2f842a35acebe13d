//! Converts an entry to a `ModelSpec` for the core: the best figure for its memory (M1), and the durations that follow from its size
//! (L3).

use std::collections::BTreeMap;

use config::{Config, KeepHot};
use pool::{Bytes, KeepHotBounds, KeepHotScope, Layout, ModelSpec, Span, UNTIL_NEEDED};

use super::estimate::EstimateError;
use super::figures::Figures;
use super::layouts::{Demand, DeviceSize};
use super::memory_split::MemorySplit;
use super::need_source::{MeasuredNeed, NeedSource};
use crate::entries::Entry;
use crate::recipes::Recipe;

/// Time limit of a load, plus `LOAD_DEADLINE_PER_GIB` for each GiB (L3).
const LOAD_DEADLINE_BASE: Span = Span::from_secs(300);
const LOAD_DEADLINE_PER_GIB: Span = Span::from_secs(20);
/// No weights are loaded; an endpoint that takes longer than this to become ready has a problem.
const REMOTE_DEADLINE: Span = Span::from_secs(60);
/// Ray may have to start a machine first and download the weights there.
const RAY_SERVE_DEADLINE: Span = Span::from_secs(900);
/// The estimated load time without a measurement: process start, and one gigabyte per second.
const RELOAD_BASE: Span = Span::from_secs(2);
pub(super) const RELOAD_BYTES_PER_MILLISECOND: u64 = 1_000_000;
/// Time between SIGTERM and SIGKILL, unless the model's file sets it (L5).
const STOP_GRACE: Span = Span::from_secs(10);
/// The keep-hot time under `adaptive` before a model's first request.
const KEEP_HOT_AT_FIRST: Span = Span::from_secs(600);

/// The figures of a model for the core and for display.
#[derive(Debug)]
pub struct EntryFigures {
    pub spec: ModelSpec,
    pub source: NeedSource,
    /// Memory per device without any measurement.
    pub estimated: Option<Bytes>,
    /// The same by place, for engines that divide a model between GPUs and host memory.
    pub split: Option<MemorySplit>,
}

impl Entry {
    /// The model's description for the core. Fails only for a command whose memory is unknown. Reads the headers of the model's
    /// files: call it outside the event loop.
    pub fn spec(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_on(config, measured, None)
    }

    /// Like `spec`, for models whose largest device is `device`, which matters for engines that fill a share of a device, or run in
    /// host memory.
    pub fn spec_on(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        self.spec_by(&Figures::on(self, device), config, measured, device)
    }

    /// Like `spec_on`, plus the estimates ignoring the measurement. Reads the files once for all.
    pub fn spec_and_estimate(
        &self,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<EntryFigures, EstimateError> {
        let figures = Figures::on(self, device);
        let (spec, source) = self.spec_by(&figures, config, measured, device)?;
        let estimated = match measured {
            None => Some(spec.bytes_per_device),
            Some(_) => {
                let figure = self.figure(&figures, config, None, device);
                figure.ok().map(|(bytes, _)| bytes)
            }
        };
        Ok(EntryFigures {
            spec,
            source,
            estimated,
            split: figures.split(),
        })
    }

    /// Memory of one replica on each device.
    fn figure(
        &self,
        figures: &Figures<'_>,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(Bytes, NeedSource), EstimateError> {
        match figures.bytes(self.devices_per_replica, measured, device) {
            Err(_) if self.waits() => Ok((Bytes(Bytes::GIB), NeedSource::Unfetched)),
            // Offline it stays unknown until the weights are on this machine.
            Ok((bytes, NeedSource::Rough { .. })) if self.waits() && !config.sources.offline => {
                Ok((bytes, NeedSource::Estimate))
            }
            figure => figure,
        }
    }

    fn spec_by(
        &self,
        figures: &Figures<'_>,
        config: &Config,
        measured: Option<MeasuredNeed>,
        device: Option<DeviceSize>,
    ) -> Result<(ModelSpec, NeedSource), EstimateError> {
        let absent = self.waits();
        let (bytes_per_device, source) = self.figure(figures, config, measured, device)?;
        let damage = self.damage_in(figures);
        let total = Bytes(
            bytes_per_device
                .0
                .saturating_mul(u64::from(self.devices_per_replica)),
        );
        let reload = match measured {
            Some(measured) => Span(measured.reload_ms),
            None => Span(
                RELOAD_BASE
                    .0
                    .saturating_add(total.0 / RELOAD_BYTES_PER_MILLISECOND),
            ),
        };
        let pool = &config.pool;
        let bounds = KeepHotBounds {
            least: pool.keep_hot_least.0,
            most: pool.keep_hot_most.0,
        };
        let (keep_hot, adaptive_keep_hot) = match self.keep_hot.unwrap_or(pool.keep_hot) {
            KeepHot::For(length) => (length.0, None),
            KeepHot::UntilNeeded => (UNTIL_NEEDED, None),
            // Until enough use has been observed. An administrator's override replaces both.
            KeepHot::Adaptive => (
                KEEP_HOT_AT_FIRST.clamp(bounds.least, bounds.most),
                Some(bounds),
            ),
        };
        let split = figures.split();
        let spec = ModelSpec {
            name: self.name.clone(),
            priority: self.priority,
            devices_per_replica: self.devices_per_replica,
            nodes: self.nodes,
            devices_max: self.recipe.devices_max(),
            bytes_per_device,
            host_bytes: split.as_ref().map_or(Bytes::ZERO, |split| split.host),
            host_mapped: split.as_ref().map_or(Bytes::ZERO, |split| split.mapped),
            keep_hot,
            adaptive_keep_hot,
            // A time in the model's own file means exactly that.
            keep_hot_scope: if self.keep_hot.is_some() {
                KeepHotScope::Model
            } else {
                pool.keep_hot_scope.into()
            },
            min_resident: self.min_resident.unwrap_or(pool.min_resident).span(),
            max_turn: self.max_turn.unwrap_or(pool.max_turn).span(),
            queue_limit: self.queue_limit.unwrap_or(pool.queue_limit),
            queue_timeout: self.queue_timeout.unwrap_or(pool.queue_timeout.0),
            seats_per_replica: self.seats_per_replica,
            load_deadline: self.load_deadline.unwrap_or(match &self.recipe {
                Recipe::Remote(_) => REMOTE_DEADLINE,
                Recipe::RayServe(_) => RAY_SERVE_DEADLINE,
                _ => deadline_for(total),
            }),
            replicas_max: self.recipe.ray_serve().map(|serve| serve.replicas_max),
            reload,
            reload_is_guess: measured.is_none(),
            engine: self.recipe.engine(),
            stop_grace: self.stop_grace.unwrap_or(STOP_GRACE),
            need_is_fixed: matches!(source, NeedSource::File | NeedSource::Unseen),
            wider: self.wider(device),
            loader: self.loader(total),
            parking: self.parking(total),
            scaling: self.scaling.clone().map(Box::new),
            started_with: self.started_with(),
            files_mark: self.files_mark(),
            absent: absent || damage.is_some(),
            damage,
            ..ModelSpec::default()
        };
        Ok((spec, source))
    }

    /// The device counts it may grow to if none is configured (M5).
    fn wider(&self, device: Option<DeviceSize>) -> Vec<Layout> {
        let layouts = self.layouts(&BTreeMap::new(), device);
        let layouts = layouts.unwrap_or_default().into_iter().skip(1);
        layouts
            .map(|layout| Layout {
                devices: layout.devices,
                bytes_per_device: layout.bytes_per_device,
            })
            .collect()
    }

    /// The demand of one replica on each of `devices` devices, and the source of the figure. Reads the headers of the model's
    /// files. Fails like `spec`, except for engines that fill a share of a device: their demand does not depend on the model.
    pub fn demand(
        &self,
        devices: u32,
        measured: Option<MeasuredNeed>,
    ) -> Result<(Demand, NeedSource), EstimateError> {
        Figures::new(self).demand(devices, measured)
    }
}

fn deadline_for(total: Bytes) -> Span {
    let more = u128::from(LOAD_DEADLINE_PER_GIB.0) * u128::from(total.0) / u128::from(Bytes::GIB);
    Span(
        LOAD_DEADLINE_BASE
            .0
            .saturating_add(u64::try_from(more).unwrap_or(u64::MAX)),
    )
}

#[cfg(test)]
mod tests;

//! The wire types of the admin API, and their construction from the controller's snapshot. Plain data and conversions without I/O,
//! decisions or HTTP. Byte counts end in `_bytes`, durations in `_ms`, times in `_at` (RFC 3339, UTC).

mod audit;
mod batches;
mod charts;
mod cordons;
mod devices;
mod files;
mod forecasts_report;
mod group_report;
mod groups;
mod history;
mod hot;
mod keys;
mod live;
mod load;
mod me;
mod message_batches;
mod models;
mod nodes;
mod plan;
mod planned_node;
mod report;
mod session;
mod upkeep;
mod usage;
mod values;
mod virtual_models;
mod votes;
mod weights;
mod what_if;
mod why;

pub use audit::{AuditList, AuditView};
pub use batches::{
    AdminBatch, AdminBatchList, BatchError, BatchErrors, BatchList, BatchModel, BatchObject,
    BatchProgress, BatchRequest, ExpiresAfter, RequestCounts,
};
pub use charts::{ChartPeriod, ChartPoint};
pub use cordons::{CordonResponse, Removed, UncordonResponse, Until};
pub use devices::{DeviceList, QueueView, WaitingView};
pub use files::{DeletedFile, FileList, FileObject, UploadForm};
pub use forecasts_report::ForecastsReport;
pub use group_report::GroupReport;
pub use groups::{ChangedGroup, GroupFigures, GroupList, GroupView, MyGroup, QuotaView};
pub use history::{EventList, EventView, LogLineView, LogList};
pub use hot::HotModels;
pub use keys::{KeyList, KeyRole, KeyView, LimitChange, LimitView, NewKey, RevokeResponse};
pub use live::{EveningView, LiveChange, LiveView, StoreView};
pub use load::{LoadResponse, UnloadResponse};
pub use me::{MeView, MyModel, MyRunningRequest, MyUsage, MyWaitingRequest};
pub use message_batches::{
    DeletedMessageBatch, MessageBatch, MessageBatchCounts, MessageBatchList, MessageBatchRequest,
};
pub use models::{ModelList, ModelView, RemoveResponse, find, measured};
pub use nodes::{
    DrainNodeResponse, NewNodeToken, NodeList, NodeShapeView, NodeTokenView, NodeUseView, NodeView,
    RequestedNodeView, RevokedNodeToken, UndrainNodeResponse, name_of as node_name,
};
pub use plan::PlanView;
pub use report::ReportView;
pub use session::{SessionView, SignInWays};
pub use upkeep::{
    CleanupMode, CleanupResponse, ConfigOrigins, EmptyRequest, ReloadResponse, ResetResponse,
};
pub use usage::{MyDeviceTime, UsageParts, UsageView, group_and_account};
pub use values::{at, class_name, moment};
pub use virtual_models::{
    RemovedVirtualModel, VirtualChoice, VirtualMember, VirtualModelList, VirtualModelView,
};
pub use votes::{Leaderboard, VoteResponse, VotedModel};
pub use what_if::WhatIfView;
pub use why::WhyView;

/// Test fixtures: a real pool with one device of 24 GiB, and the snapshot its readers see.
#[cfg(test)]
mod snapshots {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use controller::{DeviceSnapshot, Snapshot};
    use inventory::{DeviceInfo, DeviceKind};
    use pool::{
        Action, Bytes, Command, DeviceId, DeviceReading, Event, GateReading, Limits, LoadOrder,
        ModelId, ModelSpec, NodeId, OrderId, Plan, Pool, Priority, ReplicaId, Span, Time,
    };

    pub const GIB: u64 = Bytes::GIB;
    const NODE: NodeId = NodeId(0);
    const DEVICE: DeviceId = DeviceId(0);

    pub struct Rig {
        pub pool: Pool,
        pub now: Time,
        names: Vec<String>,
        orders: u64,
    }

    /// A pool with models, given as name, priority and GiB.
    pub fn pool(models: &[(&str, u32, u64)]) -> Rig {
        let names = models.iter().map(|(name, ..)| (*name).to_owned()).collect();
        let mut rig = Rig {
            pool: Pool::new(Limits::default(), false, ReplicaId(1)),
            now: Time(1_000),
            names,
            orders: 0,
        };
        let reading = DeviceReading {
            name: "gpu0".to_owned(),
            node: NODE,
            total: Bytes(24 * GIB),
            ..DeviceReading::default()
        };
        rig.hear(Event::DeviceRead {
            device: DEVICE,
            reading,
        });
        for (nth, (name, priority, gib)) in models.iter().enumerate() {
            let spec = ModelSpec {
                name: (*name).to_owned(),
                priority: Priority(*priority),
                devices_per_replica: 1,
                bytes_per_device: Bytes(gib * GIB),
                keep_hot: Span::from_secs(600),
                min_resident: Some(Span::from_secs(10)),
                max_turn: None,
                queue_limit: 10,
                queue_timeout: Span::from_secs(300),
                seats_per_replica: 4,
                load_deadline: Span::from_secs(300),
                reload: Span::from_secs(6),
                ..ModelSpec::default()
            };
            // Always-hot models would load automatically; in tests they load only on request.
            if *priority < Priority::ALWAYS_HOT.0 {
                rig.hear(Event::ModelSet {
                    model: ModelId(nth as u32),
                    spec,
                });
            } else {
                let over = spec.priority;
                rig.hear(Event::ModelSet {
                    model: ModelId(nth as u32),
                    spec: ModelSpec {
                        priority: Priority(0),
                        ..spec
                    },
                });
                let over = pool::Override {
                    priority: Some(over),
                    ..Default::default()
                };
                let load = Some(pool::LoadWish {
                    replicas: 0,
                    devices: None,
                    since: rig.now,
                });
                rig.hear(Event::WishesRestored {
                    model: ModelId(nth as u32),
                    over,
                    load,
                });
            }
        }
        rig
    }

    impl Rig {
        pub fn id(&self, name: &str) -> ModelId {
            let nth = self
                .names
                .iter()
                .position(|known| known == name)
                .expect("a model of the test");
            ModelId(nth as u32)
        }

        /// Advances the clock.
        pub fn wait(&mut self, span: Span) {
            self.now = self.now + span;
            self.hear(Event::TimerFired);
        }

        /// Starts loading a model.
        pub fn begin(&mut self, name: &str) -> ReplicaId {
            self.orders += 1;
            let order_id = OrderId(self.orders);
            let command = Command::Load(order(self.id(name)));
            let mut actions = self.hear(Event::OrderReceived {
                order: order_id,
                command,
            });
            actions.extend(self.hear(Event::Saved { order: order_id }));
            let launched = actions.iter().find_map(|action| match action {
                Action::Launch { replica, .. } => Some(*replica),
                _ => None,
            });
            launched.expect("there is room")
        }

        /// Loads a model and lets it be ready for a minute.
        pub fn load(&mut self, name: &str) -> ReplicaId {
            let replica = self.begin(name);
            self.hear(Event::ReplicaReady { replica });
            let reading = GateReading {
                replica,
                in_flight: 0,
                entered: 1,
                last_end: Some(self.now),
                idle_before: None,
            };
            self.hear(Event::GatesRead {
                readings: vec![reading],
            });
            self.wait(Span::from_secs(60));
            replica
        }

        pub fn plan(&self, load: &LoadOrder) -> (Plan, Option<Span>) {
            let pool = self.pool.clone();
            let planned = pool.preview_with_forecast(self.now, load);
            let (preview, expected) = planned.expect("the model is known");
            (preview.plan, expected)
        }

        fn hear(&mut self, event: Event) -> Vec<Action> {
            self.pool.step(self.now, event).actions
        }
    }

    pub fn order(model: ModelId) -> LoadOrder {
        LoadOrder {
            model,
            replicas: Some(1),
            devices: None,
            priority: None,
            keep_hot: None,
            lease: None,
            force: false,
            waits: true,
        }
    }

    pub fn of_pool(rig: &Rig) -> Snapshot {
        let info = DeviceInfo {
            id: DEVICE,
            name: "gpu0".to_owned(),
            kind: DeviceKind::Nvidia,
            index: 0,
            uuid: None,
            partition: None,
            variable: None,
            node: NODE,
            node_name: "here".to_owned(),
            total: Bytes(24 * GIB),
            installed: Bytes(24 * GIB),
            is_unified: false,
            has_mps: false,
            headroom: Bytes::ZERO,
            product_name: Some("Test GPU".to_owned()),
            product: 0,
            pci: None,
            links: Vec::new(),
            labels: Vec::new(),
        };
        let device = DeviceSnapshot {
            info: Arc::new(info),
            used: None,
            read_at: Some(rig.now),
            stale: None,
            own: BTreeMap::new(),
        };
        Snapshot {
            pool: rig.pool.view(rig.now),
            devices: Arc::new(BTreeMap::from([(DEVICE, device)])),
            provider: config::Provider::Nvml,
            ..Snapshot::default()
        }
    }
}

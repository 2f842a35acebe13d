//! State of earlier runs that the store has: access, the schedule, wishes, and what the pool has learned.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::evening;
use super::opening::{line, open_sign_on};
use super::starting::LeaderStart;
use access::oidc::Oidc;
use config::Config;
use controller::Clock;
use http::{Keys, Seal};
use pool::{Cordon, Time};
use schedule::{Due, Evening};
use store::{KeptWish, Measurements};

/// Keys, the single sign-on, and the seal of reasoning that clients return.
pub(super) struct Access {
    pub keys: Arc<Keys>,
    pub seal: Seal,
    pub oidc: Option<Oidc>,
}

impl Access {
    pub async fn open(
        leader: &LeaderStart<'_>,
        config: &Config,
        clock: Clock,
    ) -> Result<Access, String> {
        let first = config.auth.first_admin_key_file.as_deref();
        let key_file = config.admin_key_file();
        let keys = Keys::open(Arc::clone(leader.store), clock, &key_file, first);
        let keys = leader.step("reading the keys", keys).await?;
        let keys = Arc::new(keys.map_err(line)?);
        let seal = Seal::open(&config.state.dir.join("reasoning.key")).map_err(line)?;
        let oidc = open_sign_on(config);
        let oidc = leader.step("preparing the single sign-on", oidc).await??;
        Ok(Access { keys, seal, oidc })
    }
}

/// The schedule, the wishes that still hold, and the last numbers.
pub(super) struct Records {
    pub due: Due,
    /// The time of the cleanup that began the current night.
    pub closed_since: Option<DateTime<Utc>>,
    pub wishes: Vec<KeptWish>,
    pub last_replica: u64,
    pub last_order: u64,
}

impl Records {
    pub async fn read(
        leader: &LeaderStart<'_>,
        evening: Evening,
        config: &Config,
    ) -> Result<Records, String> {
        let due = evening::due(evening, leader.store);
        let mut due = leader.step("reading the schedule", due).await??;
        let closed_since = due.begin(Utc::now());
        let wishes = leader.step("reading the wishes", leader.store.wishes());
        let mut wishes = wishes.await?.map_err(line)?;
        if let Some(cleanup) = closed_since {
            evening::forget_loads_before(cleanup, &mut wishes);
        }
        tracing::info!("{}", evening::outlook(config));
        let numbers = leader.step("reading the last numbers", leader.store.last_numbers());
        let (last_replica, last_order) = numbers.await?.map_err(line)?;
        Ok(Records {
            due,
            closed_since,
            wishes,
            last_replica,
            last_order,
        })
    }
}

/// Measured needs, remembered demand, cordons and nodes.
pub(super) struct PoolRecords {
    pub measurements: Measurements,
    pub ledger_seen: BTreeMap<String, Time>,
    pub remembered: BTreeMap<String, Vec<u64>>,
    pub cordons: Vec<(String, Cordon)>,
    pub nodes: Vec<(u32, String)>,
}

impl PoolRecords {
    pub async fn read(leader: &LeaderStart<'_>) -> Result<PoolRecords, String> {
        let store = leader.store;
        let measurements = leader.step("reading measurements", store.measurements());
        let measurements = measurements.await?.map_err(line)?;
        let ledger_seen = leader.step("reading the ledger", store.ledger_seen());
        let ledger_seen = ledger_seen.await?.map_err(line)?;
        let remembered = leader.step("reading what models need", store.remembered());
        let remembered = remembered.await?.map_err(line)?;
        let cordons = leader.step("reading cordons", store.cordons());
        let cordons = cordons.await?.map_err(line)?;
        let nodes = store.nodes_with_credentials(controller::NODES_MAX);
        let nodes = leader.step("reading nodes", nodes).await?.map_err(line)?;
        Ok(PoolRecords {
            measurements,
            ledger_seen,
            remembered,
            cordons,
            nodes,
        })
    }
}

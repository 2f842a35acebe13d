//! Checks that are the same for every kind of cluster: the nodes' token in the pool's state, other pools with the same
//! `cluster.name`, and the memory of shapes.

use std::time::{SystemTime, UNIX_EPOCH};

use cluster::{Cluster, Finding, NodeLease, OpenedCluster, shape_memory};
use config::{ClusterKind, ClusterSection, Config};
use pool::{Span, Time};
use store::{NODE_TOKEN_EXPIRES_SOON, Store, TokenRefusal};

const DAY: Span = Span::from_secs(86_400);

/// All findings. Without a state on this machine, a note replaces the checks.
pub(super) async fn inspect(config: &Config, section: &ClusterSection) -> Vec<Finding> {
    let store = Store::open_beside(&config.database_url().reveal()).await;
    let (mut findings, own) = match &store {
        Ok(store) => (
            token(store, config, section).await,
            store.pool_id().await.ok().flatten(),
        ),
        Err(error) => {
            let why = "the pool's state is not readable here, so its token was not compared";
            (vec![Finding::Note(format!("{why}: {error}"))], None)
        }
    };
    findings.extend(others(section, own).await);
    findings.extend(shape_memory(section));
    findings
}

/// Probable mistakes in the sizes of nodes.
pub(super) fn notices(config: &Config) -> Vec<String> {
    if config.cluster.kind == ClusterKind::None {
        return Vec::new();
    }
    let findings = shape_memory(&config.cluster).into_iter();
    let text = |finding| match finding {
        Finding::Good(text) | Finding::Note(text) | Finding::Problem(text) => text,
    };
    findings.map(text).collect()
}

/// Looks up the nodes' token in the pool's state. The inspection reports a file that cannot be read.
async fn token(store: &Store, config: &Config, section: &ClusterSection) -> Vec<Finding> {
    let Some(file) = &section.token_file else {
        return Vec::new();
    };
    let Ok(text) = std::fs::read_to_string(file) else {
        return Vec::new();
    };
    let shared = config.node.join_token_file.as_ref();
    let shared = shared.and_then(|file| std::fs::read_to_string(file).ok());
    if shared.is_some_and(|shared| shared.trim() == text.trim()) {
        return Vec::new();
    }
    let shown = file.display();
    let problem = |why: String| {
        Finding::Problem(format!(
            "cluster.token_file {shown}: {why}; nodes could not join: write a new token there (admin-client nodes token --expires 90d)"
        ))
    };
    let now = now();
    let finding = match store.node_token(text.trim()).await {
        Ok(Some(token)) => match token.check(now) {
            Ok(()) => {
                let (id, left) = (token.id, token.expires.since(now));
                if left < NODE_TOKEN_EXPIRES_SOON {
                    Finding::Note(format!(
                        "cluster.token_file {shown}: token t{id} expires in {left}; write a new token there in time (admin-client nodes token --expires 90d)"
                    ))
                } else {
                    let days = left.0 / DAY.0;
                    Finding::Good(format!("token t{id} is valid for {days} days"))
                }
            }
            Err(refusal) => problem(match refusal {
                TokenRefusal::Expired { .. } => format!("token t{} has expired", token.id),
                TokenRefusal::Revoked => format!("token t{} is revoked", token.id),
                TokenRefusal::Early { .. } => {
                    format!(
                        "token t{} is not valid yet by this machine's clock",
                        token.id
                    )
                }
                TokenRefusal::Unknown => "the token is unknown".to_owned(),
            }),
        },
        Ok(None) => problem("it is not a token of this pool".to_owned()),
        Err(error) => Finding::Note(format!("the token was not compared: {error}")),
    };
    vec![finding]
}

/// Leases with the same `cluster.name` that another pool has requested. `own` is this pool's id, if it has one.
async fn others(section: &ClusterSection, own: Option<String>) -> Option<Finding> {
    let cluster = OpenedCluster::open(section)?;
    // The inspection reports a cluster that does not respond.
    let leases = cluster.status().await.ok()?;
    let first = leases.iter().find_map(|lease| lease.owner.clone());
    let own = own.or(first)?;
    let is_other = |lease: &&NodeLease| {
        let owner = lease.owner.as_ref();
        !lease.has_ended() && owner.is_some_and(|owner| *owner != own)
    };
    let lease = leases.iter().find(is_other)?;
    Some(Finding::Problem(format!(
        "another pool has the same cluster.name ({}) and has requested lease {} of shape {}; give each pool of this account its own cluster.name",
        section.name, lease.id, lease.shape
    )))
}

/// The machine's clock, by which tokens end.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = since.unwrap_or_default().as_millis();
    Time(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

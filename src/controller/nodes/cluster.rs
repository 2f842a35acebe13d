//! Starts the task that calls the cluster, next to the loop, and turns its reports into events (S2).

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::control::Control;
use crate::control::cluster_nodes::shapes;
use crate::messages::Message;
use cluster::{ClusterNews, Follower, FollowerSettings, OpenedCluster, Outlook, Period, Spending};
use pool::{DemandId, Event, NodeOutlook, NodeUse, NodesSpent, Span, Time};
use store::{NODE_TOKEN_EXPIRES_SOON, Store, StoreError, generate_key};

/// The fact with the use of nodes.
const SPENDING: &str = "node_spending";
const TOKEN_EVERY: Duration = Duration::from_secs(3600);

impl Control {
    /// Starts the cluster's task if the configuration has a cluster. It ends with the loop, after it has carried out all orders the
    /// pool has given.
    #[expect(
        clippy::disallowed_methods,
        reason = "joined by the task that ends the loop"
    )]
    pub(crate) fn follow_cluster(&mut self) -> Option<JoinHandle<()>> {
        let section = &self.config.cluster;
        let cluster = OpenedCluster::open(section)?;
        let (orders, waiting) = mpsc::unbounded_channel();
        let inbox = self.background.inbox().downgrade();
        let report = move |news| {
            if let Some(inbox) = inbox.upgrade() {
                let _ = inbox.send(Message::Cluster(news));
            }
        };
        let shapes = section.shapes.iter().map(|shape| shape.name.clone());
        self.cluster.begin(shapes.collect(), orders);
        let (store, section) = (self.journal.store(), section.clone());
        let clock = self.clock;
        Some(tokio::spawn(async move {
            let owner = pool_id(&store).await;
            let cluster = match owner.clone() {
                Some(owner) => cluster.owned_by(owner),
                None => cluster,
            };
            let settings = FollowerSettings {
                section,
                owner,
                spending: spending(&store).await,
            };
            let token_file = settings.section.token_file.clone();
            let follower = Follower::new(cluster, settings, report);
            tokio::select! {
                () = follower.run(waiting) => {}
                () = watch_token(&store, token_file, clock) => {}
            }
        }))
    }

    /// The shapes that the cluster offers.
    pub(crate) fn cluster_shapes(&self) -> Option<Event> {
        let shapes = || shapes(&self.config);
        let is_there = self.cluster.is_there();
        is_there.then(|| Event::ShapesSet { shapes: shapes() })
    }

    pub(crate) fn cluster_news(&mut self, news: ClusterNews) {
        match news {
            ClusterNews::Pending {
                demand,
                reason,
                outlook,
            } => self.turn(Event::NodePending {
                demand: DemandId(demand),
                reason,
                outlook: node_outlook(outlook),
            }),
            ClusterNews::Closed { shapes } => {
                let shapes = self.cluster.numbered(shapes);
                self.turn(Event::ShapesClosed { shapes });
            }
            ClusterNews::Refused { demand, why } => {
                let demand = DemandId(demand);
                self.cluster.ended(demand);
                self.turn(Event::NodeRefused { demand, why });
            }
            ClusterNews::Named { demand, node } => {
                self.cluster.names(node, DemandId(demand));
            }
            ClusterNews::Ends { node, unix } => {
                // The pool's time counts from the Unix epoch too.
                let at = Time(unix.saturating_mul(1000));
                self.cluster.ends(node.clone(), at);
                if let Some(node) = self.nodes.joined_as(&node) {
                    self.turn(Event::NodeEnds { node, at });
                    self.publish();
                }
            }
            ClusterNews::Sized { node, shape, set } => {
                let node = self.nodes.joined_as(&node);
                if let Some((node, shape)) = node.zip(self.cluster.number_of(&shape)) {
                    let lease = set.map(DemandId);
                    self.turn(Event::NodeSized { node, shape, lease });
                }
            }
            ClusterNews::Spent(spending) => self.spent(&spending),
            ClusterNews::Ended { node, why } => self.lease_ended(&node, &why),
        }
    }
}

impl Control {
    fn spent(&mut self, spending: &Spending) {
        let of = |period: &Period| NodeUse {
            gpu_seconds: period.gpu_seconds,
            cents: (period.cost * 100.0) as u64,
        };
        let spent = NodesSpent {
            day: of(spending.day()),
            month: of(spending.month()),
            batch_day: of(spending.batch_day()),
        };
        self.turn(Event::NodesSpent { spent });
        let store = self.journal.store();
        let text = serde_json::to_string(spending).unwrap_or_default();
        self.background.spawn(async move {
            if let Err(error) = store.save_meta(SPENDING, &text).await {
                tracing::warn!(%error, "the use of nodes could not be saved");
            }
        });
    }
}

fn node_outlook(outlook: Outlook) -> NodeOutlook {
    match outlook {
        Outlook::Unknown => NodeOutlook::Unknown,
        // The pool's time counts from the Unix epoch too.
        Outlook::Waits { starts_unix } => NodeOutlook::Waits {
            starts: starts_unix.map(|unix| Time(unix.saturating_mul(1000))),
        },
        Outlook::Stuck => NodeOutlook::Stuck,
        Outlook::Never => NodeOutlook::Never,
        Outlook::Starts => NodeOutlook::Starts,
    }
}

/// Warns before the token of the nodes expires, once an hour. Only the nodes may be able to read its file.
async fn watch_token(store: &Store, file: Option<PathBuf>, clock: Clock) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Ok(Some(token)) = store.node_token(text.trim()).await {
            let left = token.expires.since(clock.wall());
            let problem = if token.revoked {
                Some("is revoked".to_owned())
            } else if left == Span::ZERO {
                Some("has expired".to_owned())
            } else {
                (left < NODE_TOKEN_EXPIRES_SOON).then(|| format!("expires in {left}"))
            };
            if let Some(problem) = problem {
                tracing::warn!(
                    "the token t{} in cluster.token_file {} {problem}; nodes cannot join without a valid one: write a new token there (admin-client nodes token --expires 90d)",
                    token.id,
                    file.display()
                );
            }
        }
        tokio::time::sleep(TOKEN_EVERY).await;
    }
}

/// The use of nodes as stored. Zero if the store cannot be read.
async fn spending(store: &Store) -> Spending {
    match store.meta(SPENDING).await {
        Ok(text) => text
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "the use of nodes counts from now on");
            Spending::default()
        }
    }
}

/// The id of this pool, made at its first use. Two pools of one account with the same `cluster.name` differ in it. `None` if the
/// store cannot be used.
async fn pool_id(store: &Store) -> Option<String> {
    match known_pool_id(store).await {
        Ok(id) => Some(id),
        Err(error) => {
            tracing::warn!(%error, "requests for nodes carry no id of this pool");
            None
        }
    }
}

async fn known_pool_id(store: &Store) -> Result<String, StoreError> {
    if let Some(id) = store.pool_id().await? {
        return Ok(id);
    }
    // Letters and digits only: it is a part of a job's comment.
    let key = generate_key()?;
    let letters = key.reveal().chars().skip(3);
    let id: String = letters
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect();
    store.save_pool_id(&id).await?;
    Ok(id)
}

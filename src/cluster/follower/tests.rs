//! Tests of the follower with a scripted cluster and a paused clock.

use std::sync::{Arc, Mutex};

use super::*;
use crate::LeaseSet;
use tokio::task::JoinSet;

mod ended;
mod joined;
mod replacement;
mod set_leases;
mod sets;

/// The scripted cluster's leases, and the results of its calls.
#[derive(Default)]
struct Scripted {
    leases: Vec<NodeLease>,
    /// Results of the next requests; later ones are accepted.
    requests: Vec<Result<(), ClusterError>>,
    is_away: bool,
    /// Sets are leases of several nodes.
    has_sets: bool,
    /// Released leases stay listed.
    keeps_released: bool,
    log_end: Option<String>,
    calls: Vec<String>,
}

#[derive(Clone, Default)]
struct Board(Arc<Mutex<Scripted>>);

impl Board {
    fn with<R>(&self, edit: impl FnOnce(&mut Scripted) -> R) -> R {
        edit(&mut self.0.lock().expect("not poisoned"))
    }

    fn calls(&self) -> Vec<String> {
        self.with(|scripted| std::mem::take(&mut scripted.calls))
    }

    fn set(&self, id: &str, state: LeaseState) {
        self.with(|scripted| {
            let leases = scripted.leases.iter_mut();
            let of_id = leases.filter(|lease| lease.id.as_str() == id);
            let set = of_id.map(|lease| lease.state = state.clone());
            assert!(set.count() > 0, "a lease");
        });
    }
}

fn away() -> ClusterError {
    ClusterError::Unreachable {
        program: "squeue".to_owned(),
        message: "Connection refused".to_owned(),
    }
}

fn lease(id: &str, demand: Option<u64>) -> NodeLease {
    NodeLease {
        id: LeaseId::parse(id).expect("an id"),
        shape: "a1".to_owned(),
        node: format!("node-{id}"),
        demand,
        owner: None,
        set: None,
        state: pending("Resources"),
        time_limit: None,
        starts_unix: None,
        ends_unix: None,
    }
}

/// The nodes of a lease for these requests.
fn nodes_of(id: &str, demands: &[u64]) -> Vec<NodeLease> {
    let node = |(rank, demand): (usize, &u64)| NodeLease {
        node: format!("node-{id}-{rank}"),
        set: Some(LeaseSet {
            first: demands[0],
            nodes: demands.len() as u32,
        }),
        ..lease(id, Some(*demand))
    };
    demands.iter().enumerate().map(node).collect()
}

fn pending(reason: &str) -> LeaseState {
    LeaseState::Pending {
        reason: reason.to_owned(),
    }
}

fn running() -> LeaseState {
    LeaseState::Running {
        host: "gpu07".to_owned(),
    }
}

impl Cluster for Board {
    async fn request(
        &self,
        shape: &str,
        demand: Option<u64>,
        exclude: &[String],
    ) -> Result<LeaseId, ClusterError> {
        self.with(|scripted| {
            scripted
                .calls
                .push(format!("request {shape} without {exclude:?}"));
            if !scripted.requests.is_empty() {
                scripted.requests.remove(0)?;
            }
            let id = (scripted.leases.len() + 1).to_string();
            scripted.leases.push(lease(&id, demand));
            LeaseId::parse(&id)
        })
    }

    async fn request_set(
        &self,
        shape: &str,
        demands: &[u64],
        exclude: &[String],
    ) -> Option<Result<LeaseId, ClusterError>> {
        self.with(|scripted| {
            if !scripted.has_sets {
                return None;
            }
            let count = demands.len();
            scripted
                .calls
                .push(format!("request {count} x {shape} without {exclude:?}"));
            if !scripted.requests.is_empty()
                && let Err(error) = scripted.requests.remove(0)
            {
                return Some(Err(error));
            }
            let id = (scripted.leases.len() + 1).to_string();
            scripted.leases.extend(nodes_of(&id, demands));
            Some(LeaseId::parse(&id))
        })
    }

    async fn status(&self) -> Result<Vec<NodeLease>, ClusterError> {
        self.with(|scripted| {
            if scripted.is_away {
                Err(away())
            } else {
                Ok(scripted.leases.clone())
            }
        })
    }

    async fn release(&self, id: &LeaseId, how: Release) -> Result<(), ClusterError> {
        self.with(|scripted| {
            if scripted.is_away {
                return Err(away());
            }
            scripted.calls.push(format!("release {id} {how:?}"));
            if !scripted.keeps_released {
                scripted.leases.retain(|lease| lease.id != *id);
            }
            Ok(())
        })
    }

    fn names_node(&self, node: &str) -> bool {
        node.starts_with("node-")
    }

    async fn log_end(&self, _: &LeaseId) -> Option<String> {
        self.with(|scripted| scripted.log_end.clone())
    }
}

struct Story {
    tasks: JoinSet<()>,
    board: Board,
    orders: mpsc::UnboundedSender<ClusterOrder>,
    news: mpsc::UnboundedReceiver<ClusterNews>,
    /// The sizes of nodes, which most stories leave unread.
    sizes: mpsc::UnboundedReceiver<ClusterNews>,
}

impl Story {
    fn begin(board: Board) -> Story {
        let (orders, waiting) = mpsc::unbounded_channel();
        let (sender, news) = mpsc::unbounded_channel();
        let (of_sizes, sizes) = mpsc::unbounded_channel();
        let follower = Follower::new(
            board.clone(),
            FollowerSettings {
                owner: Some("own".to_owned()),
                ..FollowerSettings::default()
            },
            move |news| {
                let is_size = matches!(news, ClusterNews::Sized { .. });
                let _ = if is_size { &of_sizes } else { &sender }.send(news);
            },
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(follower.run(waiting));
        Story {
            tasks,
            board,
            orders,
            news,
            sizes,
        }
    }

    fn order(&self, order: ClusterOrder) {
        self.orders.send(order).expect("it runs");
    }

    fn request(&self, demand: u64) {
        self.request_set(&[demand]);
    }

    /// Requests one node for each of `demands`, together.
    fn request_set(&self, demands: &[u64]) {
        let (demands, shape) = (demands.to_vec(), "a1".to_owned());
        self.order(ClusterOrder::Request { demands, shape });
    }

    async fn next(&mut self) -> String {
        match self.news.recv().await.expect("it runs") {
            ClusterNews::Pending { demand, reason, .. } => format!("{demand} pending: {reason}"),
            ClusterNews::Closed { shapes } => format!("closed: {shapes:?}"),
            ClusterNews::Refused { demand, why } => format!("{demand} refused: {why}"),
            ClusterNews::Named { demand, node } => format!("{demand} is {node}"),
            ClusterNews::Ends { node, unix } => format!("{node} ends at {unix}"),
            ClusterNews::Sized { node, shape, .. } => format!("{node} is of shape {shape}"),
            ClusterNews::Spent(spending) => format!("spent {}", spending.day().gpu_seconds),
            ClusterNews::Ended { node, why } => format!("{node} has ended: {why}"),
        }
    }

    /// Lets this time pass. News stays in the channel.
    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// The calls within this time, in order.
    async fn calls_within(&self, seconds: u64) -> Vec<String> {
        self.pass(seconds).await;
        self.board.calls()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_followed_until_its_node_joins() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    assert_eq!(story.next().await, "7 is node-1");
    assert_eq!(story.next().await, "7 pending: lease 1: Resources");
    story.board.set("1", running());
    assert_eq!(
        story.next().await,
        "7 pending: lease 1 runs on gpu07; its node starts"
    );
    let node = "node-1".to_owned();
    story.order(ClusterOrder::Joined { node: node.clone() });
    assert_eq!(
        story.calls_within(3600).await,
        ["request a1 without []"],
        "a joined node is not given back"
    );
    story.order(ClusterOrder::Release { node });
    assert_eq!(story.calls_within(1).await, ["release 1 Drain"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_joins_is_released_and_its_host_avoided() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    story.board.set("1", running());
    story
        .board
        .with(|scripted| scripted.log_end = Some("no such token".to_owned()));
    story.next().await;
    let refused = story.next().await;
    assert!(
        refused.starts_with("7 refused: lease 1 has run on gpu07 for 600 s"),
        "{refused}"
    );
    assert!(
        refused.contains("its log ends with: no such token;"),
        "{refused}"
    );
    assert_eq!(
        story.calls_within(10).await,
        ["request a1 without []", "release 1 Now"]
    );
    story.request(8);
    assert_eq!(
        story.calls_within(1).await,
        ["request a1 without [\"gpu07\"]"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_cluster_is_unknown_and_its_leases_are_not_gone() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.next().await;
    story.board.with(|scripted| scripted.is_away = true);
    assert!(story.next().await.contains("cannot be reached"));
    story.order(ClusterOrder::Cancel { demand: 7 });
    story.pass(600).await;
    assert_eq!(story.board.calls(), ["request a1 without []"]);
    story.board.with(|scripted| scripted.is_away = false);
    assert_eq!(story.calls_within(10).await, ["release 1 Now"]);
    assert!(story.news.try_recv().is_err(), "the request is taken back");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_lost_response_is_found_by_its_demand_id_or_retried() {
    let board = Board::default();
    board.with(|scripted| {
        scripted.leases.push(lease("5", Some(7)));
        scripted.requests = (0..6).map(|_| Err(away())).collect();
    });
    // The first poll is over before the request arrives.
    let mut story = Story::begin(board);
    story.pass(1).await;
    story.order(ClusterOrder::Joined {
        node: "node-5".to_owned(),
    });
    story.request(7);
    assert_eq!(story.next().await, "7 is node-5");
    // The cluster was unreachable and responds again. Only the fourth failure counts as a refusal, after which the pool pauses.
    story.board.calls();
    story.request(8);
    let refused = story.next().await;
    assert!(
        refused.starts_with("8 refused: the cluster cannot"),
        "{refused}"
    );
    assert_eq!(story.board.calls(), ["request a1 without []"; 4]);
    story.request(9);
    assert_eq!(story.next().await, "9 is node-2");
    assert_eq!(story.board.calls(), ["request a1 without []"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_the_end_of_a_lease_are_reported() {
    let board = Board::default();
    board.with(|scripted| {
        scripted.requests = vec![Err(ClusterError::Refused {
            program: "sbatch".to_owned(),
            message: "Invalid qos".to_owned(),
            advice: String::new(),
        })];
    });
    let mut story = Story::begin(board);
    story.request(7);
    assert_eq!(story.next().await, "7 refused: sbatch refuses: Invalid qos");
    story.request(8);
    story.next().await;
    story.next().await;
    let why = "it was cancelled by its owner".to_owned();
    story.board.set("1", LeaseState::Ended { why });
    assert_eq!(
        story.next().await,
        "8 refused: lease 1 has ended: it was cancelled by its owner"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_released_even_during_shutdown() {
    let mut story = Story::begin(Board::default());
    story.request(7);
    story.next().await;
    story.order(ClusterOrder::Cancel { demand: 7 });
    let Story {
        board,
        orders,
        mut tasks,
        ..
    } = story;
    drop(orders);
    tasks.join_next().await.expect("one").expect("it ends");
    assert_eq!(board.calls(), ["request a1 without []", "release 1 Now"]);
}

//! Starts the task that calls the cluster, next to the loop, and turns its reports into events (S2).

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::Control;
use crate::control::cluster_nodes::shapes;
use crate::messages::Message;
use cluster::{ClusterNews, Follower, OpenedCluster};
use pool::{DemandId, Event, Time};

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
        let inbox = self.inbox.downgrade();
        let follower = Follower::new(cluster, section.join_within.duration(), move |news| {
            if let Some(inbox) = inbox.upgrade() {
                let _ = inbox.send(Message::Cluster(news));
            }
        });
        let shapes = section.shapes.iter().map(|shape| shape.name.clone());
        self.cluster.begin(shapes.collect(), orders);
        Some(tokio::spawn(follower.run(waiting)))
    }

    /// The shapes that the cluster offers.
    pub(crate) fn cluster_shapes(&self) -> Option<Event> {
        let shapes = || shapes(&self.config);
        let is_there = self.cluster.is_there();
        is_there.then(|| Event::ShapesSet { shapes: shapes() })
    }

    pub(crate) fn cluster_news(&mut self, news: ClusterNews) {
        match news {
            ClusterNews::Pending { demand, reason } => self.turn(Event::NodePending {
                demand: DemandId(demand),
                reason,
            }),
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
        }
    }
}
